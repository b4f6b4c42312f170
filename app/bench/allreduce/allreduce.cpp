#include <lockstep/app/bench/allreduce/allreduce.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/app/bench/allreduce/rows.h>
#include <lockstep/app/bench/allreduce/sizes.h>
#include <lockstep/app/cli/help_group.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/machine/need_memory.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/join_world.h>
#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/app/report/report.h>
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
  algorithms = {Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing};
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

// local_processes: of this host, which need the same at the same time.
void need_memory(const std::vector<torch::Device>& devices, int64_t bytes, int local_processes) {
  const auto what = fmt::format("sums of {} bytes on {}", bytes_text(bytes), spec_of(devices));
  const auto on_host =
      std::count_if(devices.begin(), devices.end(), [](auto device) { return device.is_cpu(); });
  need_host_memory(kTensorsPerRank * bytes * on_host * std::max(1, local_processes), what, "--max-bytes");
  const std::vector<int64_t> each(devices.size(), kTensorsPerRank * bytes);
  need_gpu_memory(devices, each, what, "--max-bytes");
}

// Seconds of one size, by repetition.
struct SumTimes {
  std::vector<std::vector<double>> sums;  // [algorithm]
  std::vector<double> copies;
};

bool settled(const SumTimes& times) {
  return std::all_of(times.sums.begin(), times.sums.end(),
                     [](const auto& seconds) { return median_is_stable(seconds, kStable); });
}

SumTimes time_sums(AllreduceRanks& ranks, size_t algorithms, const BenchAllreduceOptions& options,
                   const BenchReport& report) {
  SumTimes times{.sums = std::vector<std::vector<double>>(algorithms), .copies = {}};
  std::vector<int> iterations;
  double seconds_each = ranks.copy_seconds();
  for (size_t a = 0; a < algorithms; ++a) {  // warm-up; also finds the number of sums per repetition
    const double once = ranks.seconds(a, 3);
    iterations.push_back(static_cast<int>(std::clamp(kLeastSeconds / once, 1.0, 100.0)));
    seconds_each += once * iterations.back();
  }
  const auto most =
      std::min<double>(static_cast<double>(options.iterations), 1 + kMostSeconds / seconds_each);
  for (int i = 0; i < options.bench.repeat || (i < most && !settled(times)); ++i) {
    if (i > 0 && report.interrupted()) break;
    for (size_t a = 0; a < algorithms; ++a) times.sums[a].push_back(ranks.seconds(a, iterations[a]));
    times.copies.push_back(ranks.copy_seconds());
  }
  return times;
}

// Compares the algorithms with root, the chapter's algorithm, at the largest size.
void compare_with_root(BenchReport& report, const std::string& devices,
                       const std::vector<Allreduce>& algorithms, const SumTimes& times, int64_t bytes) {
  const auto root = std::find(algorithms.begin(), algorithms.end(), Allreduce::kRoot);
  if (root == algorithms.end()) return;
  const auto& reference = times.sums[static_cast<size_t>(root - algorithms.begin())];
  for (size_t a = 0; a < algorithms.size(); ++a) {
    const auto ratio = paired_ratio(reference, times.sums[a]);
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
  SumTimes times;
  for (const auto count : counts) {
    report.stop_if_interrupted(
        fmt::format("before {} bytes on {}", bytes_text(count * kFloatBytes), replicas.spec()));
    ranks.set_count(count);
    std::vector<SumFacts> facts;
    for (size_t a = 0; a < algorithms.size(); ++a) {
      facts.push_back({.threads = threads, .wrong = ranks.wrong_elements(a)});
      if (replicas.world.single_process()) facts.back().wire_bytes = 0;
      if (algorithms[a] == Allreduce::kGloo) facts.back().wire_bytes = ranks.bytes_on_wire(a);
    }
    times = time_sums(ranks, algorithms.size(), options, report);
    for (size_t a = 0; a < algorithms.size(); ++a) {
      report.row(
          allreduce_row(replicas, algorithms[a], count * kFloatBytes, facts[a], times.sums[a], times.copies));
      all_wrong += facts[a].wrong;
    }
  }
  compare_with_root(report, replicas.spec(), algorithms, times, counts.back() * kFloatBytes);
  leave_together(replicas.world);  // before the first process closes its connections
  return all_wrong;
}

// Returns the settings that all processes must have in common. Their devices, threads and files may differ.
Json agreed_settings(const BenchAllreduceOptions& options, const std::vector<int64_t>& counts) {
  return {{"min_bytes", counts.front() * kFloatBytes},
          {"max_bytes", counts.back() * kFloatBytes},
          {"allreduce", options.algorithms},
          {"iterations", options.iterations},
          {"repeat", options.bench.repeat}};
}

// Checks everything before the first sum. What one process must refuse ends all processes.
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
      need_memory(replicas.devices, counts.back() * kFloatBytes, world.place.local_processes);
    }
    return agreed_settings(options, counts);
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

}  // namespace

void setup_bench_allreduce(CLI::App& bench) {
  auto* allreduce =
      bench.add_subcommand("allreduce", "Sums over replicas: time and bandwidth by size and algorithm");
  auto options = std::make_shared<BenchAllreduceOptions>();
  add_bench_flags(
      *allreduce, options->bench,
      "Replicas that sum; repeat the flag to compare lists (default: all GPUs, cuda:0x2 or cpux2)");
  allreduce
      ->add_option("--allreduce", options->algorithms,
                   "Algorithm; repeat the flag for several (default: all that these devices can use)")
      ->check(one_of(names_of(kAllreduceNames)))
      ->allow_extra_args(false)
      ->default_str("");
  allreduce
      ->add_option("--min-bytes", options->min_bytes,
                   "Smallest sum; sizes grow by a factor of four (default: 8; with several processes 1K)")
      ->check(byte_size(kFloatBytes));
  allreduce
      ->add_option("--max-bytes", options->max_bytes,
                   "Largest sum (default: 128M; with several processes 64M)")
      ->check(byte_size(kFloatBytes));
  allreduce
      ->add_option("--iterations", options->iterations,
                   "Most repetitions of a row whose median is not stable, at least --repeat")
      ->check(positive_int());
  const auto processes = std::make_shared<ProcessFlags>();
  add_process_flags(*allreduce, *processes);
  group_bench_flags(*allreduce);
  set_group(*allreduce, HelpGroup::kMeasuring,
            {"--allreduce", "--min-bytes", "--max-bytes", "--iterations", "--seed"});
  allreduce->callback([options, processes] {
    in_joined_world(*processes, BenchReport::kAwaited,
                    [&](TrainWorld& world) { run_bench_allreduce(*options, world); });
  });
}

void run_bench_allreduce(const BenchAllreduceOptions& options, TrainWorld& world) {
  std::vector<int64_t> counts;
  const auto lists = prepare(options, world, counts);
  if (lists.size() == 1) world.devices = lists.front().world.devices;  // errors name the ranks
  std::optional<BenchReport> report;
  together(world, [&] {
    report.emplace("allreduce", options.bench,
                   Json{{"min_bytes", counts.front() * kFloatBytes},
                        {"max_bytes", counts.back() * kFloatBytes},
                        {"processes", world.place.processes}},
                   world);
    return Json();
  });
  print_notes(*report, options.bench, lists);
  report->run([&] {
    report->table("allreduce", allreduce_columns(world));
    int64_t wrong = 0;
    for (const auto& replicas : lists) wrong += measure(*report, options, replicas, counts);
    report->check("sums", wrong == 0, counted(wrong, "element") + " wrong");
  });
}

}  // namespace lockstep
