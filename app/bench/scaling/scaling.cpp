#include <lockstep/app/bench/scaling/scaling.h>

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <memory>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/lists.h>
#include <lockstep/app/bench/scaling/prediction.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/memory/need_memory.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/train/fields.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/run.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr int kMostReplicas = 1 << 16;
constexpr double kRounding = 1e-9;
constexpr double kMargin = .03;  // a smaller gain or loss is noise

// 1, 2, 4, ... devices, as many as there are GPUs or cores.
std::vector<std::string> default_lists() {
  const auto gpus = static_cast<int>(cuda_devices().size());
  const int most = gpus > 0 ? gpus : static_cast<int>(allowed_cores().size());
  std::vector<std::string> lists;
  for (int n = 1; n <= most; n *= 2) {
    std::string list = gpus > 0 ? "cuda:0" : fmt::format("cpux{}", n);
    for (int i = 1; gpus > 0 && i < n; ++i) list += fmt::format(",cuda:{}", i);
    lists.push_back(list);
  }
  return lists;
}

std::vector<Column> scaling_columns() {
  return {{.key = "mode", .title = "mode", .width = 6, .digits = kText},
          {.key = "devices", .title = "devices", .width = 12, .digits = kText},
          {.key = "batch_size", .title = "batch", .unit = "images", .width = 8},
          {.key = "ms", .title = "step", .unit = "ms", .width = 8, .digits = 2},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "seconds_per_epoch", .title = "epoch", .unit = "s", .width = 7, .digits = 1},
          {.key = "speedup", .title = "speed-up", .width = 8, .digits = 2},
          {.key = "efficiency", .title = "efficiency", .unit = "%", .digits = 1},
          {.key = "exposed_sync", .title = "exposed sync", .unit = "%", .digits = 2},
          {.key = "accuracy", .title = "test acc", .width = 8, .digits = 3}};
}

// Percent. Empty with too few repetitions.
std::optional<double> share_of(const std::vector<double>& part, const std::vector<double>& whole) {
  const auto ratio = paired_ratio(part, whole);
  return ratio ? std::optional(100 * *ratio) : std::nullopt;
}

Json row_of(const ScalingCase& measured, const ScalingCase& reference) {
  const auto seconds = quartiles_of(measured.seconds);
  const auto faster = speed_up(measured, reference);
  const auto& plan = measured.plan;
  return {{"mode", measured.replicas() == 1 ? "one" : name_of(kScalingNames, measured.scaling)},
          {"devices", spec_of(plan.trainer.devices)},
          {"replicas", measured.replicas()},
          {"threads", plan.trainer.threads},
          {"model", plan.model},
          {"batch_size", static_cast<int64_t>(measured.rows())},
          {"lr", plan.trainer.lr.lr},
          {"ms", 1e3 * seconds.median},
          {"low_ms", 1e3 * seconds.low},
          {"high_ms", 1e3 * seconds.high},
          {"repeats", seconds.repeats},
          {"iqr", 100 * seconds.relative_iqr()},
          {"seconds_per_epoch", seconds.median * static_cast<double>(plan.steps_per_epoch)},
          {"speedup", or_null(faster)},
          {"efficiency", faster ? Json(100 * *faster / measured.replicas()) : Json()},
          {"exposed_sync", or_null(share_of(measured.sync, measured.seconds))},
          {"accuracy", or_null(measured.accuracy)}};
}

// Trains for --epochs as `train` does and returns the test accuracy.
double accuracy_of(const BenchScalingOptions& options, const ScalingCase& measured) {
  auto train = options.train;
  train.quiet = true;
  const Terminal terminal(STDOUT_FILENO, ColorMode::kNever);
  return TrainRun(measured.plan, train, terminal, nullptr).run().test_accuracy;
}

void check(BenchReport& report, const ScalingCase& measured, const ScalingCase& reference) {
  const auto devices = spec_of(measured.plan.trainer.devices);
  const auto mode = name_of(kScalingNames, measured.scaling);
  report.check(fmt::format("{} {}: replicas", mode, devices), measured.agree,
               measured.agree ? "all have the same weights" : "their weights differ");
  if (measured.scaling != Scaling::kStrong || measured.plan.has_batch_norm) return;
  const double apart = weights_apart(measured.plan, reference.plan);
  report.check(
      fmt::format("{} {}: update", mode, devices), apart <= kRounding,
      fmt::format("three steps in double differ from one device's by {:.1e}, rounding is at most {:.0e}",
                  apart, kRounding));
}

// With --split auto: compares several devices with the fastest of them alone.
void answer_mixing(BenchReport& report, const std::vector<ScalingCase>& cases) {
  for (const auto& mixed : cases) {
    if (!mixed.plan.trainer.auto_split || mixed.replicas() == 1) continue;
    const ScalingCase* fastest = nullptr;
    for (const auto& alone : cases) {
      const auto& devices = mixed.plan.trainer.devices;
      if (alone.replicas() > 1) continue;
      if (std::find(devices.begin(), devices.end(), alone.plan.trainer.devices.front()) == devices.end())
        continue;
      if (!fastest || median(alone.seconds) < median(fastest->seconds)) fastest = &alone;
    }
    const auto gain = fastest ? speed_up(mixed, *fastest) : std::nullopt;
    if (!gain) continue;
    const char* answer = "sharing the work by speed makes no difference";
    if (*gain >= 1 + kMargin) answer = "sharing the work by speed pays";
    if (*gain <= 1 - kMargin) answer = "sharing the work does not pay";
    const auto devices = spec_of(mixed.plan.trainer.devices);
    report.finding(
        fmt::format(
            "{} {}: {} ({:.2f} x the images per second of {}, the fastest of them alone); shares found: {}",
            name_of(kScalingNames, mixed.scaling), devices, answer, *gain,
            spec_of(fastest->plan.trainer.devices), fmt::join(mixed.shares, ":")),
        {{"devices", devices}, {"gain", *gain}, {"pays", *gain >= 1 + kMargin}, {"shares", mixed.shares}});
  }
}

void predict(BenchReport& report, const BenchScalingOptions& options, const std::vector<ScalingCase>& cases,
             const std::vector<ScalingCase>& fractions) {
  const auto& plan = cases.front().plan;
  const auto link = options.link ? parse_link(*options.link) : measure_link(plan);
  report_prediction(report, fractions, cases, link, *options.predict,
                    static_cast<int>(allowed_cores().size()));
}

// With --epochs also trains for the accuracy. If that ends early (Ctrl-C, diverging weights), prints all
// times first.
void print_rows(BenchReport& report, const BenchScalingOptions& options, std::vector<ScalingCase>& cases) {
  std::exception_ptr ended;
  report.table("scaling", scaling_columns());
  for (auto& each : cases) {
    if (options.epochs && !ended && !report.interrupted()) {
      try {
        each.accuracy = accuracy_of(options, each);
      } catch (const Error&) {
        ended = std::current_exception();
      }
    }
    report.row(row_of(each, cases.front()));
  }
  if (ended) std::rethrow_exception(ended);
  report.stop_if_interrupted("after the repetitions that are shown");
}

// Throws if the cases do not fit into memory together, or --predict has fewer than three batch sizes.
void check_fit(const std::vector<ScalingCase>& cases, const std::vector<ScalingCase>& fractions) {
  if (!fractions.empty() &&
      !(fractions[0].rows() > fractions[1].rows() && fractions[1].rows() > fractions[2].rows())) {
    throw UsageError(
        fmt::format("--predict compares steps of b, b/2 and b/4 images; with a batch of {} from {} "
                    "images these are {}, {} and {}",
                    fractions[0].plan.batch_size, fractions[0].plan.data.set.train.size(),
                    fractions[0].rows(), fractions[1].rows(), fractions[2].rows()),
        "use a --batch-size of at least 4, and no fewer images (--limit-train)");
  }
  std::vector<TrainPlan> plans;
  for (const auto* some : {&cases, &fractions}) {
    for (const auto& each : *some) {
      plans.insert(plans.end(), static_cast<size_t>(each.background_load) + 1, each.plan);
    }
  }
  need_memory_for(plans);
}

void measure(BenchReport& report, const BenchScalingOptions& options, std::vector<ScalingCase> cases,
             std::vector<ScalingCase> fractions) {
  const auto count = static_cast<std::ptrdiff_t>(cases.size());
  cases.insert(cases.end(), fractions.begin(), fractions.end());
  measure_cases(cases, options.bench.repeat, options.iterations, report);
  fractions.assign(cases.begin() + count, cases.end());
  cases.resize(static_cast<size_t>(count));
  print_rows(report, options, cases);
  for (const auto& each : cases) {
    if (each.replicas() > 1) check(report, each, cases.front());
  }
  answer_mixing(report, cases);
  if (options.predict) predict(report, options, cases, fractions);
}

}  // namespace

void setup_bench_scaling(CLI::App& bench) {
  auto* scaling = bench.add_subcommand(
      "scaling", "One training on more and more replicas, and its speed predicted for more");
  auto options = std::make_shared<BenchScalingOptions>();
  add_recipe_flags(*scaling, options->train);
  add_optimizer_flags(*scaling, options->train);
  add_engine_flags(*scaling, options->train);
  scaling
      ->add_option("--scaling", options->scaling,
                   "strong: one batch for all replicas; weak: one batch for each, at n times the rate")
      ->check(one_of({"strong", "weak", "both"}));
  scaling
      ->add_option("--split", options->train.split,
                   "As for train; auto also says whether mixing devices pays")
      ->type_name("SHARES");
  scaling
      ->add_option("--iterations", options->iterations,
                   "Steps per repetition (default: about a third of a second)")
      ->check(positive_int())
      ->default_str("");
  scaling
      ->add_option("--epochs", options->epochs,
                   "Also train this many epochs on each list, for the test accuracy")
      ->check(positive_int(kMaxEpochs));
  scaling->add_option("--predict", options->predict, "Also predict the time of a step on up to N devices")
      ->check(positive_int(kMostReplicas));
  scaling
      ->add_option("--link", options->link,
                   "Their link: nvlink4, pcie5 or alpha,beta in us and GB/s (default: measured here)")
      ->type_name("LINK");
  add_bench_flags(*scaling, options->bench,
                  "Replicas that train; repeat the flag to compare lists (default: 1, 2, 4, ... up to all)");
  group_flags(*scaling);
  scaling->callback([options] {
    refuse_several_processes("bench scaling");
    run_bench_scaling(*options);
  });
}

void run_bench_scaling(const BenchScalingOptions& options) {
  if (options.link && !options.predict) {
    throw UsageError(fmt::format("--link {} describes the link of a prediction, but --predict is not given",
                                 *options.link),
                     "add --predict 8, or leave --link out");
  }
  if (options.link) parse_link(*options.link);
  ScalingLists lists(options, device_lists(options.bench, default_lists()));
  const auto cases = lists.cases();
  const auto fractions = options.predict ? lists.fractions() : std::vector<ScalingCase>();
  check_fit(cases, fractions);
  auto settings = shared_fields(SettingsOf::kBench, options.train, cases.front().plan);
  settings["scaling"] = options.scaling;
  settings["threads"] = lists.threads();
  BenchReport report("scaling", options.bench, std::move(settings));
  report.note(fmt::format(
      "each replica has {}, alone too; speed-up: ratio of images per second to one device, paired",
      counted(lists.threads(), "thread")));
  report.note("by repetition; weak: n times the batch at n times the learning rate");
  report.run([&] { measure(report, options, cases, fractions); });
}

}  // namespace lockstep
