// The parts that tests of GradientSync share: replicas in threads of their own, and a network whose gradients
// are whole numbers.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/tests/support/refusal.h>

namespace lockstep::testing {

inline const std::vector<SyncMode> kModes = {SyncMode::kParameterwise, SyncMode::kBucketed,
                                             SyncMode::kOverlapped};

// Runs a function per rank in worker threads, with a communicator.
struct SyncWorld {
  explicit SyncWorld(int size, Trace* trace = nullptr)
      : devices(static_cast<size_t>(size), torch::kCPU),
        workers(devices, 1),
        communicator(make_communicator({.devices = devices, .threads = 1, .trace = trace})) {}

  void run(const std::function<void(int rank, Endpoint& endpoint)>& task) {
    workers.run(*communicator, task);
  }

  std::vector<torch::Device> devices;
  ReplicaWorkers workers;
  std::unique_ptr<Communicator> communicator;
};

// The results of task(rank, endpoint), by rank.
template <class Task>
auto by_rank(SyncWorld& world, const Task& task) {
  // No vector<bool>, whose elements share a byte: replicas write at the same time.
  std::vector<std::invoke_result_t<const Task&, int, Endpoint&>> results(world.devices.size());
  world.run([&](int rank, Endpoint& endpoint) { results[static_cast<size_t>(rank)] = task(rank, endpoint); });
  return results;
}
template <class Task>
auto by_rank(int world_size, const Task& task) {
  SyncWorld world(world_size);
  return by_rank(world, task);
}

// The UsageErrors of the ranks; empty where there is none.
inline std::vector<std::string> refusals(int world_size,
                                         const std::function<void(int rank, Endpoint&)>& task) {
  return by_rank(world_size,
                 [&](int rank, Endpoint& endpoint) { return refusal_of([&] { task(rank, endpoint); }); });
}

// Six parameters. A loss reaches those that it is told to. Their gradients are whole numbers below 50
// that differ per rank, step, parameter and element: sums are exact.
class WholeGradientsImpl : public torch::nn::Module {
 public:
  static constexpr size_t kParams = 6;
  using Reached = std::function<bool(size_t param)>;

  WholeGradientsImpl() {
    const int64_t sizes[kParams] = {40, 3, 100, 17, 1, 64};  // 48, 16, 112, 32, 16, 64 with gaps
    for (const auto size : sizes) {
      params_.push_back(
          register_parameter("p" + std::to_string(params_.size()), torch::ones({size}, torch::kFloat)));
    }
  }

  // The gradient of a parameter that this loss reaches.
  torch::Tensor gradient(size_t param, int rank, int step) const {
    const auto first = 31 * rank + 5 * step + 13 * static_cast<int64_t>(param);
    return (torch::arange(params_[param].numel(), torch::kInt64) * 7 + first)
        .remainder(97)
        .sub(48)
        .to(torch::kFloat);
  }

  // Runs backward on the loss, unless it reaches nothing.
  void backward(int rank, int step, const Reached& reached) const {
    torch::Tensor loss;
    for (size_t i = 0; i < kParams; ++i) {
      if (!reached(i)) continue;
      const auto part = (params_[i] * gradient(i, rank, step)).sum();
      loss = loss.defined() ? loss + part : part;
    }
    if (loss.defined()) loss.backward();
  }

  const std::vector<torch::Tensor>& params() const { return params_; }

 private:
  std::vector<torch::Tensor> params_;
};

}  // namespace lockstep::testing
