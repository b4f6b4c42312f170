// The state of the calling thread and of generators on which a part of a model depends beside its inputs.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <array>
#include <vector>

#include <lockstep/support/thread_random.h>

namespace lockstep {

// Torch's autocast in a thread, on CPUs and GPUs.
class AutocastState {
 public:
  AutocastState();  // as it is now
  void set() const;

 private:
  struct OfType {
    bool enabled = false;
    torch::ScalarType dtype = torch::kBFloat16;
  };
  static constexpr std::array kTypes = {torch::kCPU, torch::kCUDA};
  std::array<OfType, kTypes.size()> types_;
};

// The states of the default generators of those GPUs on which these tensors are.
class GpuGenerators {
 public:
  explicit GpuGenerators(const std::vector<torch::Tensor>& tensors);
  void swap();  // exchanges the states with those that the generators have

 private:
  struct Entry {
    at::Generator generator;
    torch::Tensor state;
  };
  std::vector<Entry> entries_;
};

// The state of its thread that a run of a part finds: made before the first run.
struct Surroundings {
  explicit Surroundings(const std::vector<torch::Tensor>& inputs);

  AutocastState autocast;
  at::Generator generator;  // a copy of the one from which the thread's CPU operations draw
  GpuGenerators gpu_generators;
};

// While it lives, this thread has these surroundings, in grad mode. Its destructor puts back what it found,
// these buffers included, whose versions stay: backward may need them.
class WithSurroundings {
 public:
  WithSurroundings(const Surroundings& surroundings, const std::vector<torch::Tensor>& buffers);
  ~WithSurroundings();
  WithSurroundings(const WithSurroundings&) = delete;
  WithSurroundings& operator=(const WithSurroundings&) = delete;

 private:
  struct Buffer {
    torch::Tensor data;
    torch::Tensor before;
  };

  const torch::AutoGradMode grad_mode_{true};
  const AutocastState autocast_before_;
  const bool autocast_cached_before_;
  const ThreadRandom random_;
  GpuGenerators gpu_generators_;
  std::vector<Buffer> buffers_;
};

}  // namespace lockstep
