// lockstep bench scaling: measures a training on 1, 2, 4, ... replicas and predicts it on more.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/lists.h>
#include <lockstep/app/bench/scaling/measure_link.h>
#include <lockstep/app/bench/scaling/prediction.h>
#include <lockstep/app/bench/scaling/table.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/app/report/benchmark.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/app/train/run.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr int kMostReplicas = 1 << 16;

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

void predict(BenchReport& report, const BenchScalingOptions& options, const std::vector<ScalingCase>& cases,
             const std::vector<ScalingCase>& fractions) {
  const auto given = options.link ? std::optional(parse_link(*options.link)) : std::nullopt;
  if (!cases.back().plan.world.single_process()) {
    report_process_prediction(report, fractions, cases, given, *options.predict);
    return;
  }
  const auto link = given ? *given : measure_link(cases.front().plan);
  report_prediction(report, fractions, cases, link, *options.predict,
                    static_cast<int>(allowed_cores().size()));
}

// With --epochs: trains for the accuracy of a case. Returns whether all processes can go on; `ended` is what
// has ended the training of this one.
bool take_accuracy(const BenchScalingOptions& options, ScalingCase& each, LargestOfAll& largest,
                   std::exception_ptr& ended) {
  try {
    if (each.trains) each.accuracy = run_silently(each.plan, options.train).test_accuracy;
  } catch (const Error&) {
    ended = std::current_exception();
  }
  return !largest.any(ended != nullptr);
}

// With --epochs also trains for the accuracy. If that ends early (Ctrl-C, diverging weights), prints all
// times first.
void print_rows(BenchReport& report, const BenchScalingOptions& options, std::vector<ScalingCase>& cases,
                LargestOfAll& largest) {
  std::exception_ptr ended;
  bool goes_on = options.epochs.has_value();
  const auto& all = cases.back().plan.world;
  report.table("scaling", scaling_columns(!all.single_process(), cases.back().plan.data.set.row_noun));
  for (auto& each : cases) {
    if (goes_on && !report.interrupted()) goes_on = take_accuracy(options, each, largest, ended);
    if (all.leads()) report.row(scaling_row(each, cases.front()));
  }
  report.stop_if_interrupted("after the repetitions that are shown");  // by all, also if one has ended
  if (ended) std::rethrow_exception(ended);
}

// Throws if the cases do not fit into memory together, or --predict has fewer than three batch sizes.
void check_fit(const std::vector<ScalingCase>& cases, const std::vector<ScalingCase>& fractions) {
  if (!fractions.empty() &&
      !(fractions[0].rows() > fractions[1].rows() && fractions[1].rows() > fractions[2].rows())) {
    throw UsageError(
        fmt::format("--predict compares steps of b, b/2 and b/4 {0}s; with a batch of {1} from {2} "
                    "{0}s these are {3}, {4} and {5}",
                    fractions[0].plan.data.set.row_noun, fractions[0].plan.batch_size,
                    fractions[0].plan.data.set.train.rows, fractions[0].rows(), fractions[1].rows(),
                    fractions[2].rows()),
        "use a --batch-size of at least 4, and no fewer rows (--limit-train)");
  }
  std::vector<TrainPlan> plans;
  for (const auto* some : {&cases, &fractions}) {
    for (const auto& each : *some) {
      if (each.trains) plans.insert(plans.end(), static_cast<size_t>(each.background_load) + 1, each.plan);
    }
  }
  need_memory_for(plans);
}

void measure(BenchReport& report, const BenchScalingOptions& options, std::vector<ScalingCase> cases,
             std::vector<ScalingCase> fractions) {
  const auto count = static_cast<std::ptrdiff_t>(cases.size());
  const TrainPlan all = cases.back().plan;  // every process trains
  LargestOfAll largest(all.world.process_group.get());
  cases.insert(cases.end(), fractions.begin(), fractions.end());
  measure_cases(cases, options, report, largest);
  fractions.assign(cases.begin() + count, cases.end());
  cases.resize(static_cast<size_t>(count));
  print_rows(report, options, cases, largest);
  for (size_t i = 1; i < cases.size(); ++i) {
    if (cases[i].replicas() == 1 && all.world.single_process()) continue;
    check_case(report, cases[i], cases.front(), all, largest);
  }
  if (all.world.single_process()) answer_mixing(report, cases);
  if (options.predict) predict(report, options, cases, fractions);
  leave_together(all.world);  // before the first process closes its connections
}

// The cases that are measured, with their threads and connections.
struct Prepared {
  int threads = 1;                           // of each replica of this process
  std::unique_ptr<ScalingLists> lists = {};  // keeps the connections of parts of the world
  std::vector<ScalingCase> cases = {}, fractions = {};
};

// Returns the settings that all processes must have in common. Their devices, threads and files may differ.
Json agreed_settings(const BenchScalingOptions& options, const TrainPlan& plan) {
  Json settings = agreed_fields(options.train, plan);
  const auto given = shared_fields(kInBench, options.train, plan);
  for (auto& field : settings.items()) {  // the batch of weak scaling is nobody's --batch-size
    if (given.contains(field.key())) field.value() = given.at(field.key());
  }
  settings["scaling"] = options.scaling;
  settings["iterations"] = options.iterations;
  settings["repeat"] = options.bench.repeat;
  settings["epochs"] = or_null(options.epochs);
  settings["predict"] = or_null(options.predict);
  settings["link"] = or_null(options.link);
  return settings;
}

void check_link(const BenchScalingOptions& options) {
  if (options.link && !options.predict) {
    throw UsageError(fmt::format("--link {} describes the link of a prediction, but --predict is not given",
                                 *options.link),
                     "add --predict 8, or leave --link out");
  }
  if (options.link) parse_link(*options.link);
}

// Throws UsageError for a plan with which the prediction cannot be measured.
void check_predictable(const TrainPlan& plan) {
  const bool alone = plan.world.single_process();
  if (!alone && plan.trainer.devices.front().is_cuda()) {
    throw UsageError(
        "--predict over several processes needs CPU replicas, got " + spec_of(plan.trainer.devices),
        "it measures when a CPU has filled each bucket; in one process --predict knows GPUs");
  }
  if (!plan.trainer.replica.invariant) return;
  if (!alone) {
    throw UsageError("--predict over several processes cannot be combined with --invariant",
                     "invariant sums do not overlap with backward: leave one of them out");
  }
  if (plan.trainer.shard != Shard::kNone) {
    throw UsageError("--predict with --shard cannot be combined with --invariant",
                     "invariant sums have no buckets: leave one of them out");
  }
}

// Checks everything before the first step. A refusal in one process ends all of them.
Prepared prepare(const BenchScalingOptions& options, const TrainWorld& world) {
  together(world, [&] {
    check_link(options);
    return Json();
  });
  const auto otherwise = world.single_process() ? default_lists() : std::vector<std::string>{"auto"};
  Prepared prepared;
  prepared.lists = std::make_unique<ScalingLists>(options, bench_replicas(world, options.bench, otherwise));
  agree_on_settings(world, [&] {
    prepared.threads = prepared.lists->threads();
    prepared.cases = prepared.lists->cases();
    if (options.predict) prepared.fractions = prepared.lists->fractions();
    check_fit(prepared.cases, prepared.fractions);
    if (options.predict) check_predictable(prepared.cases.back().plan);
    return agreed_settings(options, prepared.cases.back().plan);
  });
  return prepared;
}

void print_notes(const BenchReport& report, const Prepared& prepared) {
  report.note(
      fmt::format("each replica has {}, alone too; speed-up: ratio of {}s per second to one device, paired",
                  counted(prepared.threads, "thread"), prepared.cases.back().plan.data.set.row_noun));
  report.note("by repetition; weak: n times the batch at n times the learning rate");
  const auto& all = prepared.cases.back().plan.world;
  if (all.single_process()) return;
  report.note("processes  " + all.text());
  report.note("           fewer processes are the first ones; the others wait");
}

void add_scaling_flags(CLI::App& scaling, BenchScalingOptions& options) {
  add_setting_flags(scaling, kBench, options.train);
  scaling
      .add_option(
          "--scaling", options.scaling,
          "strong: one batch for all replicas; weak: one batch for each, at n times the learning rate")
      ->check(one_of({"strong", "weak", "both"}));
  scaling
      .add_option("--split", options.train.split, "As for train; auto also says whether mixing devices pays")
      ->type_name("SHARES");
  scaling
      .add_option("--iterations", options.iterations,
                  "Steps per repetition (default: about a third of a second)")
      ->check(positive_int())
      ->default_str("");
  scaling
      .add_option("--epochs", options.epochs,
                  "Also train this many epochs on each list, for the test accuracy")
      ->check(positive_int(kMaxEpochs));
  scaling
      .add_option(
          "--predict", options.predict,
          "Also predict the time of a step on up to N devices, or in up to N processes if there are several")
      ->check(positive_int(kMostReplicas));
  scaling
      .add_option(
          "--link", options.link,
          "Link that --predict assumes: nvlink4, pcie5 or alpha,beta in us and GB/s (default: measured)")
      ->type_name("LINK");
  add_bench_flags(scaling, options.bench,
                  "Replicas that train; repeat the flag to compare lists (default: 1, 2, 4, ... up to all)");
  group_bench_flags(scaling);
  set_group(scaling, HelpGroup::kTask, {"--epochs", "--seed"});
  set_group(scaling, HelpGroup::kReplicas, {"--split"});
  set_group(scaling, HelpGroup::kMeasuring, {"--scaling", "--iterations", "--predict", "--link"});
}

void run_scaling(const BenchScalingOptions& options, TrainWorld& world) {
  const auto prepared = prepare(options, world);
  const auto& all = prepared.cases.back().plan;
  world.devices = all.world.devices;  // errors name the ranks
  auto settings = shared_fields(kInBench, options.train, all);
  settings["scaling"] = options.scaling;
  settings["threads"] = prepared.threads;
  settings["processes"] = world.place.processes;
  BenchReport report("scaling", options.bench, std::move(settings), world);
  print_notes(report, prepared);
  report.run([&] { measure(report, options, prepared.cases, prepared.fractions); });
}

}  // namespace

void setup_bench_scaling(CLI::App& bench) {
  add_benchmark(bench, "scaling", "Time a training on 1, 2, 4, ... replicas, and predict more",
                add_scaling_flags, run_scaling);
}

}  // namespace lockstep
