// lockstep bench allreduce: times sums over replicas, of one process or several, by size and algorithm, in
// the table of nccl-tests.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/app/bench/allreduce/row.h>
#include <lockstep/app/cli/byte_size.h>
#include <lockstep/app/cli/help_group.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/machine/need_memory.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/app/report/benchmark.h>
#include <lockstep/app/report/report.h>
#include <lockstep/parallel/collectives/allreduce/local_algorithms.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kGrowth = 4;          // factor from row to row
constexpr double kStable = .03;         // a row ends when its median is known to this relative error ...
constexpr double kMostSeconds = 2;      // ... or after this long
constexpr double kLeastSeconds = 2e-3;  // of a repetition of small sums
// Tensors per rank during a check: the rank's own, the copy, the expected sum, and the input as whole numbers
// (two) and as floats.
constexpr int64_t kTensorsPerRank = 6;

struct BenchAllreduceOptions {
  BenchOptions bench;
  std::vector<std::string> algorithms;   // empty: all that these devices can use
  std::optional<std::string> min_bytes;  // empty: 8; with several processes 1K
  std::optional<std::string> max_bytes;  // empty: 128M; with several processes 64M
  int64_t iterations = 200;              // most repetitions per row
};

void add_allreduce_flags(CLI::App& allreduce, BenchAllreduceOptions& options) {
  add_bench_flags(
      allreduce, options.bench,
      "Replicas that sum; repeat the flag to compare lists (default: all GPUs, cuda:0x2 or cpux2)");
  allreduce
      .add_option("--allreduce", options.algorithms,
                  "Algorithm; repeat the flag for several (default: all that these devices can use)")
      ->check(one_of(names_of(kAllreduceNames)))
      ->allow_extra_args(false)
      ->default_str("");
  allreduce
      .add_option("--min-bytes", options.min_bytes,
                  "Smallest sum; sizes grow by a factor of four (default: 8; with several processes 1K)")
      ->check(byte_size(kFloatBytes));
  allreduce
      .add_option("--max-bytes", options.max_bytes, "Largest sum (default: 128M; with several processes 64M)")
      ->check(byte_size(kFloatBytes));
  allreduce
      .add_option("--iterations", options.iterations,
                  "Most repetitions of a row whose median is not stable, at least --repeat")
      ->check(positive_int());
  group_bench_flags(allreduce);
  set_group(allreduce, HelpGroup::kMeasuring,
            {"--allreduce", "--min-bytes", "--max-bytes", "--iterations", "--seed"});
}

// With several processes, each has one replica.
std::string default_devices(const TrainWorld& world) {
  if (!world.single_process()) return "auto";
  return cuda_devices().size() > 1 ? "cuda" : default_pair();
}

// The algorithms that were asked for, or else all that these replicas can use.
std::vector<Allreduce> algorithms_for(const std::vector<std::string>& names, const BenchReplicas& replicas) {
  std::vector<Allreduce> algorithms;
  std::vector<std::string> chosen;
  for (const auto& name : names) {
    const auto named = value_of(kAllreduceNames, name);
    algorithms.push_back(replicas.world.chosen_allreduce(named, replicas.devices));
    chosen.emplace_back(name_of(kAllreduceNames, algorithms.back()));
  }
  need_distinct(chosen, "--allreduce", "an algorithm is measured once: leave one out");
  if (!algorithms.empty()) return algorithms;
  const auto automatic = replicas.world.chosen_allreduce(Allreduce::kAuto, replicas.devices);
  if (!replicas.world.single_process()) return {automatic};
  for (const auto& local : local_algorithms()) algorithms.push_back(local.allreduce);
  if (automatic == Allreduce::kNccl) algorithms.push_back(automatic);
  return algorithms;
}

std::vector<int64_t> counts_of(const BenchAllreduceOptions& options, bool single_process) {
  const auto smallest = options.min_bytes.value_or(single_process ? "8" : "1K");
  const auto largest = options.max_bytes.value_or(single_process ? "128M" : "64M");
  const auto least = parse_bytes(smallest), most = parse_bytes(largest);
  if (least > most) {
    throw UsageError(fmt::format("--min-bytes {} is above --max-bytes {}", smallest, largest),
                     "give a smaller --min-bytes or a larger --max-bytes");
  }
  std::vector<int64_t> counts;
  for (auto bytes = least; bytes <= most; bytes *= kGrowth) counts.push_back(bytes / kFloatBytes);
  return counts;
}

// processes_on_host: of this host, which need the same at the same time.
void need_memory(const std::vector<torch::Device>& devices, int64_t bytes, int processes_on_host) {
  const auto what = fmt::format("sums of {} bytes on {}", bytes_text(bytes), spec_of(devices));
  const auto on_host =
      std::count_if(devices.begin(), devices.end(), [](auto device) { return device.is_cpu(); });
  need_host_memory(kTensorsPerRank * bytes * on_host * std::max(1, processes_on_host), what, "--max-bytes");
  const std::vector<int64_t> each(devices.size(), kTensorsPerRank * bytes);
  need_gpu_memory(devices, each, what, "--max-bytes");
}

// nccl-tests' columns and lockstep's own; for several processes also what travels between them.
std::vector<Column> allreduce_columns(const TrainWorld& world) {
  std::vector<Column> columns = {
      {.key = "devices", .title = "devices", .width = 12, .digits = kText},
      {.key = "algorithm", .title = "algorithm", .width = 9, .digits = kText},
      {.key = "bytes", .title = "size", .unit = "B", .width = 10},
      {.key = "count", .title = "count", .unit = "floats", .width = 9},
      {.key = "us", .title = "time", .unit = "us", .width = 9, .digits = 1},
      {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
      {.key = "algbw", .title = "algbw", .unit = "GB/s", .width = 7, .digits = 2},
      {.key = "busbw", .title = "busbw", .unit = "GB/s", .width = 7, .digits = 2},
      {.key = "wrong", .title = "#wrong", .width = 6},
      {.key = "copy_us", .title = "copying", .unit = "us", .width = 9, .digits = 1},
      {.key = "over_copy", .title = "/ copying", .width = 9, .digits = 2},
      {.key = "repeats", .title = "repeats", .width = 7}};
  if (!world.single_process()) {
    columns.push_back({.key = "wire_bytes", .title = "on wire", .unit = "B", .width = 10});
  }
  return columns;
}

// Times all algorithms, and copying last.
std::vector<Seconds> time_sums(AllreduceRanks& ranks, size_t algorithms, int64_t most_repetitions,
                               const BenchReport& report) {
  std::vector<std::function<double()>> cases;
  double seconds_each = ranks.copy_seconds();
  for (size_t a = 0; a < algorithms; ++a) {  // warm-up; also finds the number of sums per repetition
    const double once = ranks.seconds(a, 3);
    const auto sums = static_cast<int>(std::clamp(kLeastSeconds / once, 1.0, 100.0));
    seconds_each += once * sums;
    cases.emplace_back([&ranks, a, sums] { return ranks.seconds(a, sums); });
  }
  cases.emplace_back([&ranks] { return ranks.copy_seconds(); });
  const auto most = std::min<double>(static_cast<double>(most_repetitions), 1 + kMostSeconds / seconds_each);
  return report.in_turns(cases, [&](const std::vector<Seconds>& taken) {
    const bool stable = std::all_of(taken.begin(), taken.end() - 1,
                                    [](const auto& seconds) { return median_is_stable(seconds, kStable); });
    return static_cast<double>(taken.front().size()) < most && !stable;
  });
}

// Compares the algorithms with root, the chapter's algorithm, at the largest size.
void compare_with_root(BenchReport& report, const std::string& devices,
                       const std::vector<Allreduce>& algorithms, const std::vector<Seconds>& seconds,
                       int64_t bytes) {
  const auto root = std::find(algorithms.begin(), algorithms.end(), Allreduce::kRoot);
  if (root == algorithms.end()) return;
  const auto& reference = seconds[static_cast<size_t>(root - algorithms.begin())];
  for (size_t a = 0; a < algorithms.size(); ++a) {
    const auto ratio = paired_ratio(reference, seconds[a]);
    if (!ratio || algorithms[a] == Allreduce::kRoot) continue;
    report.finding(fmt::format("{}, {} bytes: {} is {:.2f} x as fast as root", devices, bytes_text(bytes),
                               name_of(kAllreduceNames, algorithms[a]), *ratio),
                   {{"devices", devices},
                    {"bytes", bytes},
                    {"algorithm", name_of(kAllreduceNames, algorithms[a])},
                    {"speed_over_root", *ratio}});
  }
}

// Measures one list of devices. Returns the number of wrong elements.
int64_t measure(BenchReport& report, const BenchAllreduceOptions& options, const BenchReplicas& replicas,
                const std::vector<int64_t>& counts) {
  const auto algorithms = algorithms_for(options.algorithms, replicas);
  const int threads = threads_for(options.bench, replicas.devices.size());
  AllreduceRanks ranks(replicas.devices, threads, algorithms, replicas.world.process_group);
  int64_t all_wrong = 0;
  std::vector<Seconds> seconds;
  for (const auto count : counts) {
    const auto bytes = count * kFloatBytes;
    report.stop_if_interrupted(fmt::format("before {} bytes on {}", bytes_text(bytes), replicas.spec()));
    ranks.set_count(count);
    std::vector<SumFacts> facts;
    for (size_t a = 0; a < algorithms.size(); ++a) {
      facts.push_back({.wrong = ranks.wrong_elements(a)});
      if (replicas.world.single_process()) facts.back().wire_bytes = 0;
      if (algorithms[a] == Allreduce::kGloo) facts.back().wire_bytes = ranks.bytes_on_wire(a);
    }
    seconds = time_sums(ranks, algorithms.size(), options.iterations, report);
    for (size_t a = 0; a < algorithms.size(); ++a) {
      report.row(
          allreduce_row(replicas, threads, algorithms[a], bytes, facts[a], seconds[a], seconds.back()));
      all_wrong += facts[a].wrong;
    }
  }
  compare_with_root(report, replicas.spec(), algorithms, seconds, counts.back() * kFloatBytes);
  leave_together(replicas.world);  // before the first process closes its connections
  return all_wrong;
}

// Checks everything before the first sum. A refusal in one process ends all of them.
std::vector<BenchReplicas> prepare(const BenchAllreduceOptions& options, const TrainWorld& world,
                                   std::vector<int64_t>& counts) {
  together(world, [&] {
    counts = counts_of(options, world.single_process());
    return Json();
  });
  auto lists = bench_replicas(world, options.bench, {default_devices(world)});
  agree_on_settings(world, [&] {
    for (const auto& replicas : lists) {
      if (world.single_process()) need_devices(replicas.devices, 2, "a sum over replicas");
      algorithms_for(options.algorithms, replicas);
      need_memory(replicas.devices, counts.back() * kFloatBytes, world.place.processes_on_host);
    }
    // The same in all processes. Their devices, threads and files may differ.
    return Json{{"min_bytes", counts.front() * kFloatBytes},
                {"max_bytes", counts.back() * kFloatBytes},
                {"allreduce", options.algorithms},
                {"iterations", options.iterations},
                {"repeat", options.bench.repeat}};
  });
  return lists;
}

// The lines that explain the columns and the replicas.
void print_notes(const BenchReport& report, const BenchOptions& options,
                 const std::vector<BenchReplicas>& lists) {
  report.note("time       of one sum, median over repetitions; IQR: interquartile range / median");
  report.note("algbw      size / time; busbw: algbw x 2 (n-1)/n, what each of n links carries (nccl-tests)");
  report.note("copying    for comparison: all replicas at once copy 2 (n-1)/n of the size each");
  const bool single_process = lists.front().world.single_process();
  if (!single_process) {
    report.note("on wire    bytes that a process sends to others for one sum, as Linux counts them");
  }
  for (const auto& replicas : lists) {
    if (!single_process) report.note("processes  " + replicas.world.text());
    report.note(fmt::format("threads    {}: {} per replica{}", replicas.spec(),
                            threads_for(options, replicas.devices.size()),
                            single_process ? "" : " of process 0"));
  }
}

void run_allreduce(const BenchAllreduceOptions& options, TrainWorld& world) {
  std::vector<int64_t> counts;
  const auto lists = prepare(options, world, counts);
  if (lists.size() == 1) world.devices = lists.front().world.devices;  // errors name the ranks
  BenchReport report("allreduce", options.bench,
                     {{"min_bytes", counts.front() * kFloatBytes},
                      {"max_bytes", counts.back() * kFloatBytes},
                      {"processes", world.place.processes}},
                     world);
  print_notes(report, options.bench, lists);
  report.run([&] {
    report.table("allreduce", allreduce_columns(world));
    int64_t wrong = 0;
    for (const auto& replicas : lists) wrong += measure(report, options, replicas, counts);
    report.check("sums", wrong == 0, counted(wrong, "element") + " wrong");
  });
}

}  // namespace

void setup_bench_allreduce(CLI::App& bench) {
  add_benchmark(bench, "allreduce", "Sums over replicas: time and bandwidth by size and algorithm",
                add_allreduce_flags, run_allreduce);
}

}  // namespace lockstep
