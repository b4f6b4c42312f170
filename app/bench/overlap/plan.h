// The plan of `bench overlap`, derived from its flags.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/app/bench/overlap/options.h>

namespace lockstep {

inline constexpr int64_t kChapterSize = 4000;
inline constexpr int64_t kCpuSize = 1000;  // if one of the devices is a CPU
inline constexpr int64_t kChapterIterations = 50;
inline constexpr int kExercises = 5;

struct OverlapPlan {
  std::vector<torch::Device> devices;
  int threads = 1;         // per CPU device
  int64_t size = 0;        // rows and columns of a matrix
  int64_t iterations = 0;  // matmuls of one `run`; exercises: see the help
  int repeat = 1;
  uint64_t seed = 0;
  std::optional<int> exercise;
  bool network = false;  // whether the two-layer network runs too
};

// Throws UsageError if there are several device lists, or fewer than two devices where two are needed.
OverlapPlan plan_of(const BenchOverlapOptions& options);

// Throws MemoryError if the host or a GPU has too little memory.
void need_memory(const OverlapPlan& plan);

}  // namespace lockstep
