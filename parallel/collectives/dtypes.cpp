#include <lockstep/parallel/collectives/dtypes.h>

namespace lockstep {

torch::Tensor as_bytes(const torch::Tensor& tensor) { return tensor.view({-1}).view(torch::kByte); }

bool can_be_summed(torch::ScalarType type) {
  type = addend_type(type);
  if (c10::isFloatingType(type)) return c10::elementSize(type) > 1;
  return c10::isIntegralType(type, /*includeBool=*/true);
}

torch::ScalarType addend_type(torch::ScalarType type) {
  if (c10::isComplexType(type)) return c10::toRealValueType(type);
  switch (type) {
    case torch::kUInt16:
      return torch::kShort;
    case torch::kUInt32:
      return torch::kInt;
    case torch::kUInt64:
      return torch::kLong;
    default:
      return type;
  }
}

torch::Tensor addends_of(const torch::Tensor& tensor) {
  const auto type = addend_type(tensor.scalar_type());
  const auto addends = type == tensor.scalar_type() ? tensor : tensor.view({-1}).view(type);
  return type == torch::kShort ? addends.to(torch::kInt) : addends;
}

}  // namespace lockstep
