#include <lockstep/parallel/collectives/allreduce/sum_chunks.h>

#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr int64_t kBlock = 2048;  // elements: 8 kB of floats

// Block by block, so that the sum is written from the core's L1 cache. chunks[r], sums[i] (n)
template <class T>
void sum_blocks(const std::vector<T*>& chunks, const std::vector<T*>& sums, int64_t n) {
  std::array<T, kBlock> sum;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const auto size = std::min(kBlock, n - begin);
    std::copy_n(chunks[0] + begin, size, sum.data());
    for (size_t other = 1; other < chunks.size(); ++other) {
      const T* next = chunks[other] + begin;
      for (int64_t i = 0; i < size; ++i) sum[static_cast<size_t>(i)] += next[i];  // of bools: or
    }
    for (T* out : sums) std::copy_n(sum.data(), size, out + begin);
  }
}

template <class T>
std::vector<T*> addresses(const std::vector<torch::Tensor>& tensors) {
  std::vector<T*> found;
  for (const auto& tensor : tensors) found.push_back(tensor.mutable_data_ptr<T>());
  return found;
}

void sum_on_host(const std::vector<torch::Tensor>& chunks, const std::vector<torch::Tensor>& sums) {
  const auto type = chunks.front().scalar_type();
  AT_DISPATCH_ALL_TYPES_AND3(torch::kHalf, torch::kBFloat16, torch::kBool, type, "allreduce", [&] {
    sum_blocks(addresses<scalar_t>(chunks), addresses<scalar_t>(sums), chunks.front().numel());
  });
}

// The same with torch's operations, for devices with their own memory.
void sum_on_device(const std::vector<torch::Tensor>& chunks, const std::vector<torch::Tensor>& sums,
                   torch::Device device) {
  auto sum = chunks[0].to(device) + chunks[1].to(device);
  for (size_t other = 2; other < chunks.size(); ++other) sum.add_(chunks[other].to(device));
  for (const auto& out : sums) out.copy_(sum);
}

}  // namespace

void sum_chunks(const std::vector<torch::Tensor>& chunks, const std::vector<torch::Tensor>& sums,
                torch::Device device) {
  const auto are_on_host = [](const auto& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.is_cpu(); });
  };
  if (are_on_host(chunks) && are_on_host(sums))
    sum_on_host(chunks, sums);
  else
    sum_on_device(chunks, sums, device);
}

}  // namespace lockstep
