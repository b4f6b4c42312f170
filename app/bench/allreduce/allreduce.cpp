#include <lockstep/app/bench/allreduce/allreduce.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/app/bench/allreduce/sizes.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/memory/need_memory.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/report/report.h>
#include <lockstep/app/train/combinations.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr int64_t kSmallest = sizeof(float);
constexpr int64_t kGrowth = 4;          // factor from row to row
constexpr double kStable = .03;         // a row ends when its median is known to this relative error ...
constexpr double kMostSeconds = 2;      // ... or after this long
constexpr double kLeastSeconds = 2e-3;  // of a repetition of small sums
// Tensors per rank during a check: the rank's own, the copy, the expected sum, and the input as whole numbers
// (two) and as floats.
constexpr int64_t kTensorsPerRank = 6;

std::string default_devices() { return cuda_devices().size() > 1 ? "cuda" : default_pair(); }

// The algorithms that were asked for, or else all that these devices can use.
std::vector<Allreduce> algorithms_for(const std::vector<std::string>& names,
                                      const std::vector<torch::Device>& devices) {
  std::vector<Allreduce> algorithms;
  std::vector<std::string> chosen;
  for (const auto& name : names) {
    const auto named = value_of(kAllreduceNames, name);
    check_allreduce_of(/*world=*/{}, named);
    algorithms.push_back(choose_allreduce(named, devices));
    chosen.emplace_back(name_of(kAllreduceNames, algorithms.back()));
  }
  need_distinct(chosen, "--allreduce", "an algorithm is measured once: leave one out");
  if (!algorithms.empty()) return algorithms;
  algorithms = {Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing};
  if (choose_allreduce(Allreduce::kAuto, devices) == Allreduce::kNccl) algorithms.push_back(Allreduce::kNccl);
  return algorithms;
}

std::vector<int64_t> counts_of(const BenchAllreduceOptions& options) {
  const auto least = parse_bytes(options.min_bytes);
  const auto most = parse_bytes(options.max_bytes);
  if (least > most) {
    throw UsageError(
        fmt::format("--min-bytes {} is above --max-bytes {}", options.min_bytes, options.max_bytes),
        "give a smaller --min-bytes or a larger --max-bytes");
  }
  std::vector<int64_t> counts;
  for (auto bytes = least; bytes <= most; bytes *= kGrowth) counts.push_back(bytes / kSmallest);
  return counts;
}

void need_memory(const std::vector<torch::Device>& devices, int64_t bytes) {
  const auto what = fmt::format("sums of {} bytes on {}", bytes_text(bytes), spec_of(devices));
  const auto on_host =
      std::count_if(devices.begin(), devices.end(), [](auto device) { return device.is_cpu(); });
  need_host_memory(kTensorsPerRank * bytes * on_host, what, "--max-bytes");
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

std::vector<Column> allreduce_columns() {
  return {{.key = "devices", .title = "devices", .width = 12, .digits = kText},
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
}

// algbw and busbw as nccl-tests defines them (its doc/PERFORMANCE.md).
Json row_of(const std::string& devices, Allreduce algorithm, int64_t count, int world, int64_t wrong,
            const std::vector<double>& seconds, const std::vector<double>& copies) {
  const auto bytes = count * kSmallest;
  const auto time = quartiles_of(seconds);
  const double algbw = static_cast<double>(bytes) / time.median / 1e9;
  const auto over_copy = paired_ratio(seconds, copies);
  return {{"devices", devices},
          {"ranks", world},
          {"algorithm", name_of(kAllreduceNames, algorithm)},
          {"bytes", bytes},
          {"count", count},
          {"us", 1e6 * time.median},
          {"low_us", 1e6 * time.low},
          {"high_us", 1e6 * time.high},
          {"iqr", 100 * time.relative_iqr()},
          {"algbw", algbw},
          {"busbw", algbw * 2 * (world - 1) / world},
          {"wrong", wrong},
          {"copy_us", 1e6 * median(copies)},
          {"over_copy", or_null(over_copy)},
          {"repeats", time.repeats}};
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
int64_t measure(BenchReport& report, const BenchAllreduceOptions& options,
                const std::vector<torch::Device>& devices, const std::vector<int64_t>& counts) {
  const auto algorithms = algorithms_for(options.algorithms, devices);
  AllreduceRanks ranks(devices, threads_for(options.bench, devices.size()), algorithms);
  int64_t all_wrong = 0;
  SumTimes times;
  for (const auto count : counts) {
    report.stop_if_interrupted(
        fmt::format("before {} bytes on {}", bytes_text(count * kSmallest), spec_of(devices)));
    ranks.set_count(count);
    std::vector<int64_t> wrong;
    for (size_t a = 0; a < algorithms.size(); ++a) wrong.push_back(ranks.wrong(a));
    times = time_sums(ranks, algorithms.size(), options, report);
    for (size_t a = 0; a < algorithms.size(); ++a) {
      auto row = row_of(spec_of(devices), algorithms[a], count, ranks.world_size(), wrong[a], times.sums[a],
                        times.copies);
      row["threads"] = threads_for(options.bench, devices.size());
      report.row(std::move(row));
      all_wrong += wrong[a];
    }
  }
  compare_with_root(report, spec_of(devices), algorithms, times, counts.back() * kSmallest);
  return all_wrong;
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
  allreduce->add_option("--min-bytes", options->min_bytes, "Smallest sum; sizes grow by a factor of four")
      ->check(byte_size(kSmallest));
  allreduce->add_option("--max-bytes", options->max_bytes, "Largest sum")->check(byte_size(kSmallest));
  allreduce
      ->add_option("--iterations", options->iterations,
                   "Most repetitions of a row whose median is not stable (at least --repeat)")
      ->check(positive_int());
  allreduce->callback([options] {
    refuse_several_processes("bench allreduce");
    run_bench_allreduce(*options);
  });
}

void run_bench_allreduce(const BenchAllreduceOptions& options) {
  const auto counts = counts_of(options);
  const auto lists = device_lists(options.bench, {default_devices()});
  for (const auto& devices : lists) {
    need_devices(devices, 2, "a sum over replicas");
    algorithms_for(options.algorithms, devices);
    need_memory(devices, counts.back() * kSmallest);
  }
  BenchReport report("allreduce", options.bench,
                     {{"min_bytes", counts.front() * kSmallest}, {"max_bytes", counts.back() * kSmallest}});
  report.note("time       of one sum, median over repetitions; IQR: interquartile range / median");
  report.note("algbw      size / time; busbw: algbw x 2 (n-1)/n, what each of n links carries (nccl-tests)");
  report.note(
      "copying    all replicas at once copy 2 (n-1)/n of the size each: the least that a sum must move");
  for (const auto& devices : lists) {
    report.note(fmt::format("threads    {}: {} per replica", spec_of(devices),
                            threads_for(options.bench, devices.size())));
  }
  report.run([&] {
    report.table("allreduce", allreduce_columns());
    int64_t wrong = 0;
    for (const auto& devices : lists) wrong += measure(report, options, devices, counts);
    report.check("sums", wrong == 0, counted(wrong, "element") + " wrong");
  });
}

}  // namespace lockstep
