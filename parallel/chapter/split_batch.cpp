#include <lockstep/parallel/split_batch.h>

#include <torch/types.h>

namespace lockstep {

std::vector<Batch> split_batch(const Batch& batch, std::span<const torch::Device> devices,
                               std::span<const double> weights) {
  std::vector<Batch> shards;
  int64_t begin = 0;
  const auto sizes = shard_sizes(batch.rows(), static_cast<int>(devices.size()), weights);
  for (size_t i = 0; i < devices.size(); ++i) {
    shards.push_back(batch.narrow(begin, sizes[i]).to(devices[i]));
    begin += sizes[i];
  }
  return shards;
}

std::vector<Batch> split_batch(const torch::Tensor& X, const torch::Tensor& y,
                               std::span<const torch::Device> devices, std::span<const double> weights) {
  return split_batch(Batch(X, y), devices, weights);
}

}  // namespace lockstep
