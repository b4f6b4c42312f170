#include <lockstep/parallel/collectives/named_bytes.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include <lockstep/parallel/collectives/agree.h>

namespace lockstep {
namespace {

using TensorList = std::vector<std::tuple<std::string, int, std::vector<int64_t>>>;  // name, dtype, sizes

}  // namespace

// The length of the header, the header, and the elements of one tensor after the other.
torch::Tensor to_bytes(const std::vector<NamedTensor>& tensors) {
  TensorList header;
  std::vector<torch::Tensor> parts;
  for (const auto& [name, tensor] : tensors) {
    const auto host = tensor.detach().cpu().contiguous();
    header.emplace_back(name, static_cast<int>(host.scalar_type()), host.sizes().vec());
    parts.push_back(host);
  }
  const auto text = wire_text(header);
  auto bytes = sizeof(uint64_t) + text.size();
  for (const auto& part : parts) bytes += part.nbytes();
  auto result = torch::empty({static_cast<int64_t>(bytes)}, torch::kUInt8);
  auto* to = result.mutable_data_ptr<uint8_t>();
  const auto add = [&to](const void* from, size_t size) {
    if (size > 0) std::memcpy(to, from, size);
    to += size;
  };
  const uint64_t length = text.size();
  add(&length, sizeof(length));
  add(text.data(), text.size());
  for (const auto& part : parts) add(part.const_data_ptr(), part.nbytes());
  return result;
}

std::vector<NamedTensor> from_bytes(const torch::Tensor& bytes) {
  const auto* from = bytes.const_data_ptr<uint8_t>();
  const auto take = [&from](void* to, size_t size) {
    if (size > 0) std::memcpy(to, from, size);
    from += size;
  };
  uint64_t length = 0;
  take(&length, sizeof(length));
  std::string text(length, '\0');
  take(text.data(), text.size());
  std::vector<NamedTensor> tensors;
  for (const auto& [name, dtype, sizes] : nlohmann::json::parse(text).get<TensorList>()) {
    auto tensor = torch::empty(sizes, static_cast<torch::ScalarType>(dtype));
    take(tensor.mutable_data_ptr(), tensor.nbytes());
    tensors.push_back({name, tensor});
  }
  return tensors;
}

}  // namespace lockstep
