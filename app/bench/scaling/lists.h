// From the lists of devices that `bench scaling` is given to the trainings that it times.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/options.h>

namespace lockstep {

class ScalingLists {
 public:
  // options: kept by reference. At least one list.
  ScalingLists(const BenchScalingOptions& options, std::vector<std::vector<torch::Device>> lists);

  int threads() const { return threads_; }  // of each replica

  // The reference, one device alone, comes first; then every list in every mode. With shares found by timing,
  // every other kind of device alone as well: what mixing is held against. Throws as `train` does.
  std::vector<Contender> contenders();

  // What a prediction starts from: one replica's steps of b, b/2 and b/4 images. Cores share their memory, so
  // it has as many neighbours as the longest list, as far as there are cores for them.
  std::vector<Contender> shards();

 private:
  // Of n b images (weak) or of b (strong), or of a fraction of b on one device.
  Contender contender(Scaling scaling, const std::vector<torch::Device>& devices, int64_t fraction = 1);
  int with_cores() const;

  const BenchScalingOptions& options_;
  const std::vector<std::vector<torch::Device>> lists_;
  int longest_ = 1;
  int threads_ = 1;
  std::optional<LoadedData> data_;
};

}  // namespace lockstep
