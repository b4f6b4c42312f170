// Where the lines and events of a run go, and what happens if one of them cannot be written.
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/recorder.h>
#include <lockstep/app/train/run.h>
#include <lockstep/tests/app/run_files/classified.h>
#include <lockstep/tests/support/file_limit.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/redirect.h>

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
          .trained = {.lr = .2, .sums = testing::classified(25, 10, 4)},
          .seconds = 1,
          .test = testing::classified(20, 10, 4)};
}

// Opens the file of --metrics, and the metrics of a run's folder.
void open_metrics(RunOutputs& outputs, const TempFolder& folder) {
  outputs.metrics.emplace((folder / "all.jsonl").string(), false);
  outputs.kept.metrics = std::make_unique<RunMetrics>(
      folder.path(), testing::kClassified, RunMetrics::Steps{.per_epoch = 5, .total = 10}, FileSizes{});
}

// The status of each `end` event.
std::vector<std::string> ends_in(const std::filesystem::path& file) {
  std::vector<std::string> ends;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] != '{') continue;
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "end") ends.push_back(event.at("status"));
  }
  return ends;
}

}  // namespace

TEST_CASE("a quiet run's lines go to its log, and events to all files") {
  const TempFolder folder;
  const auto plan = small_plan();
  const auto flags = quiet();
  RunOutputs outputs;
  open_metrics(outputs, folder);
  outputs.kept.log = std::make_unique<RunLog>();
  outputs.kept.log->open(folder / "train.log");
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
      folder.path(), testing::kClassified, RunMetrics::Steps{.per_epoch = 5, .total = 10}, FileSizes{});
  for (auto* outputs : {&with_log, &with_metrics}) {
    Recorder record(plan, flags, ColorMode::kNever, *outputs);
    {
      const FileLimit full(0);
      record.epoch(first_epoch(), std::vector{.4});
    }
    CHECK(record.has_failed());
    CHECK_THROWS_WITH(record.throw_if_failed(), ContainsSubstring("File too large"));
  }
}

TEST_CASE("a last line that one of two metrics cannot take is the only end in the other") {
  const TempFolder folder;
  const auto plan = small_plan();
  const auto flags = quiet();
  RunOutputs outputs;
  open_metrics(outputs, folder);
  outputs.metrics->append(std::string(99'999, ' ') + '\n');
  Recorder record(plan, flags, ColorMode::kNever, outputs);
  {
    const FileLimit full(50'000);  // the folder's files are shorter
    record.finished({.steps = 10});
  }
  CHECK(record.has_failed());
  record.failed(kFailed, "the disk is full", 10);  // as the run ends for it
  CHECK(ends_in(folder / kMetricsJsonl) == std::vector<std::string>{"done"});
  CHECK(ends_in(folder / "all.jsonl").empty());
}

TEST_CASE("the folder of a finished run gets no second end, however the run ends that goes on from it") {
  const auto plan = small_plan();
  const auto flags = quiet();
  for (const bool fails : {true, false}) {
    const TempFolder folder;
    RunOutputs outputs;
    open_metrics(outputs, folder);
    outputs.kept.metrics_finished = true;
    Recorder record(plan, flags, ColorMode::kNever, outputs);
    if (fails) record.failed(kFailed, "no memory", 10);
    if (!fails) record.finished({.steps = 10, .was_finished = true});
    CHECK(ends_in(folder / kMetricsJsonl).empty());
    CHECK(ends_in(folder / "all.jsonl") == std::vector<std::string>{fails ? "failed" : "done"});
  }
}

// The second checkpoint, which is written while the run ends, fails like the first one.
TEST_CASE("on a full disk the error of a run names the first checkpoint that was not written") {
  const TempFolder folder;
  TrainFlags options;
  options.data.path = "synthetic";
  options.data.limit_train = 64;
  options.data.limit_test = 8;
  options.batch_size = 32;
  options.epochs = 2;
  options.trainer.threads = 1;
  options.devices = "cpu";
  options.output = (folder / "run").string();
  options.checkpoint_every = "1";
  std::string error;
  {
    const Redirect printed(STDOUT_FILENO, (folder / "out").string());
    RunOutputs outputs;
    outputs.open(options, World());
    const auto plan = make_train_plan(options);
    outputs.kept.begin(plan, options);
    Recorder record(plan, options, ColorMode::kNever, outputs);
    const FileLimit full(100'000);  // weights alone take half a MB
    try {
      run_and_keep(plan, options, record, outputs);
    } catch (const OutputError& thrown) {
      error = thrown.message();
    }
  }
  CHECK_THAT(error, ContainsSubstring("checkpoints/step-00000001"));
  CHECK_THAT(read_file(folder / "run/train.log"), ContainsSubstring("checkpoints/step-00000002"));
  CHECK_FALSE(std::filesystem::exists(folder / "run/checkpoints/step-00000001"));
}
