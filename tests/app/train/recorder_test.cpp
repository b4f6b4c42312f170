// Where the lines and events of a run go, and what happens if one of them cannot be written.
#include <sys/resource.h>

#include <lockstep/tests/catch.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/train/recorder.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// 2 epochs of 5 steps. A quiet run.
TrainPlan small_plan() {
  TrainPlan plan;
  plan.epochs = 2;
  plan.steps_per_epoch = 5;
  plan.total_steps = 10;
  return plan;
}

TrainFlags quiet() {
  TrainFlags flags;
  flags.quiet = true;
  return flags;
}

EpochReport first_epoch() {
  return {.epoch = 1,
          .trained = {.lr = .2, .sums = row_sums(TrainSums{.loss = 25, .top1 = 4, .rows = 10, .bad = {}})},
          .seconds = 1,
          .test = row_sums(Evaluation{.loss_sum = 20, .top1 = 4, .rows = 10})};
}

// While it lives, no file of this process can grow.
class DiskFull {
 public:
  DiskFull() {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    auto none = before_;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  ~DiskFull() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_);
  }

 private:
  rlimit before_{};
  void (*old_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

}  // namespace

TEST_CASE("a quiet run's lines go to its log, and events to all files") {
  const TempFolder folder;
  const auto plan = small_plan();
  const auto flags = quiet();
  RunOutputs outputs;
  outputs.metrics.emplace((folder / "all.jsonl").string(), false);
  outputs.kept.log = std::make_unique<RunLog>();
  outputs.kept.log->open(folder / "train.log");
  outputs.kept.metrics = std::make_unique<RunMetrics>(
      folder.path(), RunMetrics::Steps{.per_epoch = 5, .total = 10}, FileSizes{});
  Recorder record(plan, flags, ColorMode::kNever, outputs);
  record.epoch(first_epoch(), std::vector{.4});
  CHECK_FALSE(record.has_failed());
  const auto event = epoch_json(first_epoch()).dump() + "\n";
  CHECK_THAT(read_file(folder / "train.log"), ContainsSubstring(" epoch 1/2 | train loss 2.5000 acc 0.400"));
  CHECK(read_file(folder / kMetricsJsonl) == event);
  CHECK(read_file(folder / "all.jsonl") == event);
  CHECK_THAT(read_file(folder / kMetricsCsv), ContainsSubstring("\nepoch,1,"));
}

TEST_CASE("a quiet run has step lines to make where a log takes them") {
  const TempFolder folder;
  const auto plan = small_plan();
  const auto flags = quiet();
  const auto has_line = [&](RunOutputs& outputs) {
    double now = 0;
    Recorder record(plan, flags, ColorMode::kNever, outputs, [&] { return now += 60; });
    record.begin_epoch({}, 0);
    return record.is_line_due();
  };
  RunOutputs outputs;
  CHECK_FALSE(has_line(outputs));
  outputs.kept.log = std::make_unique<RunLog>();
  CHECK(has_line(outputs));
}

TEST_CASE("a log or metrics that cannot be written stop the run after its step") {
  const TempFolder folder;
  const auto plan = small_plan();
  const auto flags = quiet();
  RunOutputs with_log, with_metrics;
  with_log.kept.log = std::make_unique<RunLog>();
  with_log.kept.log->open(folder / "train.log");
  with_metrics.kept.metrics = std::make_unique<RunMetrics>(
      folder.path(), RunMetrics::Steps{.per_epoch = 5, .total = 10}, FileSizes{});
  for (auto* outputs : {&with_log, &with_metrics}) {
    Recorder record(plan, flags, ColorMode::kNever, *outputs);
    {
      const DiskFull full;
      record.epoch(first_epoch(), std::vector{.4});
    }
    CHECK(record.has_failed());
    CHECK_THROWS_WITH(record.throw_if_failed(), ContainsSubstring("File too large"));
  }
}
