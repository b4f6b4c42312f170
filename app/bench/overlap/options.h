// The flags of `bench overlap`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/report/bench_options.h>

namespace lockstep {

struct BenchOverlapOptions {
  BenchOptions bench;
  std::optional<int64_t> size;        // default: 4000 on GPUs, 1000 with a CPU
  std::optional<int64_t> iterations;  // default: the chapter's 50; exercises: see the help
  std::optional<int> exercise;
  std::optional<std::string> trace;
};

}  // namespace lockstep
