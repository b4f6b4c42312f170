// Turns the device lists of `bench scaling` into the cases that it measures.
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

  // The reference (one device alone) comes first, then every list in every mode. With --split auto also every
  // other device alone, to tell whether mixing devices pays. Throws as `train` does.
  std::vector<ScalingCase> cases();

  // The input of a prediction: one replica with batches of B, B/2 and B/4 images. CPU replicas compete for
  // memory. So background trainings take the place of the other replicas of the longest list, as far as there
  // are free cores.
  std::vector<ScalingCase> fractions();

 private:
  // The batch has B images (strong) or n B (weak), divided by `divisor`.
  ScalingCase make_case(Scaling scaling, const std::vector<torch::Device>& devices, int64_t divisor = 1);
  int replicas_with_own_cores() const;  // how many CPU replicas can have cores of their own

  const BenchScalingOptions& options_;
  const std::vector<std::vector<torch::Device>> lists_;
  int longest_ = 1;
  int threads_ = 1;
  std::optional<LoadedData> data_;
};

}  // namespace lockstep
