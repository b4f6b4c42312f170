// The plan of `bench overlap`, derived from its flags, and the state of one call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/queues/device.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

inline constexpr int64_t kChapterSize = 4000;
inline constexpr int64_t kCpuSize = 1000;  // if one of the devices is a CPU
inline constexpr int64_t kChapterIterations = 50;
inline constexpr int kExercises = 5;

struct BenchOverlapOptions {
  BenchOptions bench;
  std::optional<int64_t> size;        // default: 4000 on GPUs, 1000 with a CPU
  std::optional<int64_t> iterations;  // default: the chapter's 50; exercises: see the help
  std::optional<int> exercise;
  std::optional<std::string> trace;
};

struct OverlapPlan {
  OverlapList list;
  int64_t size = 0;        // rows and columns of a matrix
  int64_t iterations = 0;  // matmuls of one `run`; exercises: see the help
  uint64_t seed = 0;
  std::optional<int> exercise;
  bool network = false;  // the two-layer network runs too

  int count() const { return static_cast<int>(list.devices.size()); }
};

// Throws UsageError if there are several device lists, or fewer than two devices where two are needed, and
// MemoryError if the host or a GPU has too little memory.
OverlapPlan plan_of(const BenchOverlapOptions& options);

struct OverlapRun {
  BenchReport& report;
  const OverlapPlan& plan;
  Trace* trace;  // for --trace; null without it
  Json timeline = Json::array();

  // Adds the events to the timeline and keeps the timeline in the report.
  void keep_timeline(const std::string& experiment, const Trace& traced);
};

// The names of ranks in traces and timelines: the devices' names, then "host".
std::vector<std::string> process_names(const OverlapPlan& plan);

// A table of times: the first column in words (key "what"), the time, its IQR, `figures`, the repetitions.
std::vector<Column> time_columns(const std::string& title, int width, const std::vector<Column>& figures);

}  // namespace lockstep
