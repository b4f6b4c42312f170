// What `bench overlap` will do, derived from its flags.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/app/bench/overlap/options.h>

namespace lockstep {

inline constexpr int64_t kChapterSize = 4000;
inline constexpr int64_t kProcessorSize = 1000;  // where one of the devices is a processor
inline constexpr int64_t kChapterIterations = 50;
inline constexpr int kExercises = 5;

struct OverlapPlan {
  std::vector<torch::Device> devices;
  int threads = 1;         // of each on a processor
  int64_t size = 0;        // of a matrix's side
  int64_t iterations = 0;  // products of one `run`; of an exercise, see the help
  int repeat = 1;
  uint64_t seed = 0;
  std::optional<int> exercise;
  bool network = false;  // the two-layer network runs, too
};

// Throws UsageError for several lists of devices, and for one device where two are needed.
OverlapPlan plan_of(const BenchOverlapOptions& options);

// Throws MemoryError, with both figures, where the host or a GPU has too little for it.
void need_memory(const OverlapPlan& plan);

}  // namespace lockstep
