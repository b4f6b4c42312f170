#include <lockstep/app/report/bench_options.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/cli/help_group.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>

namespace lockstep {

void add_bench_flags(CLI::App& bench, BenchOptions& options, const std::string& devices_help) {
  constexpr int64_t kMaxRepeat = 10'000;
  bench.add_option("--devices", options.devices, devices_help)
      ->type_name("LIST")
      ->allow_extra_args(false)
      ->default_str("");
  bench.add_option("--threads", options.threads, "Threads of each replica (default: cores / replicas)")
      ->check(thread_count());
  bench
      .add_option("--repeat", options.repeat,
                  "Repetitions, of which the median is shown; ratios need at least 3")
      ->check(positive_int(kMaxRepeat));
  bench.add_option("--seed", options.seed, "Seed of all random numbers")->check(non_negative_int());
  bench.add_option("--json", options.json, "Also write the results and the environment to this file")
      ->type_name("FILE");
  bench.add_flag("--overwrite", options.overwrite, "Replace existing output files");
}

void group_bench_flags(CLI::App& bench) {
  set_group(bench, HelpGroup::kReplicas, {"--devices", "--threads"});
  set_group(bench, HelpGroup::kMeasuring, {"--repeat"});
  set_group(bench, HelpGroup::kOutput, {"--json", "--overwrite"});
}

std::vector<std::vector<torch::Device>> device_lists(const BenchOptions& options,
                                                     const std::vector<std::string>& otherwise) {
  std::vector<std::vector<torch::Device>> lists;
  std::vector<std::string> names;
  for (const auto& spec : options.devices.empty() ? otherwise : options.devices) {
    lists.push_back(usable_devices(spec));
    names.push_back(spec_of(lists.back()));
    if (const auto notice = few_threads_notice(options.threads, lists.back())) warn(*notice);
  }
  need_distinct(names, "--devices", "leave one out: each list is measured once");
  return lists;
}

void need_distinct(const std::vector<std::string>& values, const std::string& flag, const std::string& hint) {
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (std::find(values.begin(), value, *value) == value) continue;
    throw UsageError(fmt::format("{} names {} twice", flag, *value), hint);
  }
}

int threads_for(const BenchOptions& options, size_t replicas) {
  return options.threads.value_or(default_threads(static_cast<int>(replicas)));
}

std::string default_pair() {
  const auto gpus = cuda_devices().size();
  if (gpus > 1) return "cuda:0,cuda:1";
  return gpus == 1 ? "cuda:0x2" : "cpux2";
}

void need_devices(const std::vector<torch::Device>& devices, size_t count, const std::string& who) {
  if (devices.size() >= count) return;
  const auto device = devices.front().str();
  throw UsageError(fmt::format("{} needs {}, {} has {}", who, counted(static_cast<int64_t>(count), "device"),
                               to_string(devices), devices.size()),
                   fmt::format("a device may be listed more than once: --devices {}x{}", device, count));
}

}  // namespace lockstep
