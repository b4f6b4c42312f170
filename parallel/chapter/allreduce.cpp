#include <lockstep/parallel/allreduce.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <sstream>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::string describe(const torch::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.scalar_type() << ' ' << tensor.sizes();
  return out.str();
}

}  // namespace

void allreduce(std::span<torch::Tensor> per_device) {
  if (per_device.empty()) return;
  auto& first = per_device.front();
  const auto others = per_device.subspan(1);
  for (const auto& tensor : others) {
    if (tensor.sizes() == first.sizes() && tensor.scalar_type() == first.scalar_type()) continue;
    throw UsageError(fmt::format("allreduce needs tensors of one shape and dtype, got {} and {}",
                                 describe(first), describe(tensor)),
                     "pass the same parameter's gradient from every replica");
  }
  for (const auto& tensor : others) first.add_(tensor.to(first.device()));
  for (auto& tensor : others) tensor.copy_(first);
}

}  // namespace lockstep
