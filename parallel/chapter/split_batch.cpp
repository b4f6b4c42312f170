#include <lockstep/parallel/split_batch.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <lockstep/support/error.h>

namespace lockstep {

std::vector<Inputs> split_batch(const torch::Tensor& X, const torch::Tensor& y,
                                std::span<const torch::Device> devices, std::span<const double> weights) {
  if (X.size(0) != y.size(0)) {
    throw UsageError(fmt::format("X has {} rows, y has {}", X.size(0), y.size(0)),
                     "each row needs one label");
  }
  std::vector<Inputs> shards;
  int64_t begin = 0;
  const auto sizes = shard_sizes(X.size(0), static_cast<int>(devices.size()), weights);
  for (size_t i = 0; i < devices.size(); ++i) {
    shards.push_back(
        {X.narrow(0, begin, sizes[i]).to(devices[i]), y.narrow(0, begin, sizes[i]).to(devices[i])});
    begin += sizes[i];
  }
  return shards;
}

}  // namespace lockstep
