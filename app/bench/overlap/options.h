// The flags of `bench overlap`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/report/bench_options.h>

namespace lockstep {

struct BenchOverlapOptions {
  BenchOptions bench;
  std::optional<int64_t> size;        // 4000 on GPUs, 1000 with a processor among the devices
  std::optional<int64_t> iterations;  // the chapter's 50; of an exercise, see the help
  std::optional<int> exercise;
  std::optional<std::string> trace;
};

}  // namespace lockstep
