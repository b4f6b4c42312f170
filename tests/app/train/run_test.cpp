// A run with a fake clock: which step lines it prints, and what it writes to the metrics.
#include <torch/nn/module.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include <lockstep/app/train/run.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/redirect.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using lockstep::testing::Redirect;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

std::vector<std::string> lines_in(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// 2 epochs of 20 steps.
TrainFlags small_run() {
  TrainFlags options;
  options.data.path = "synthetic";
  options.data.limit_train = 640;
  options.data.limit_test = 64;
  options.batch_size = 32;
  options.epochs = 2;
  options.trainer.threads = 1;
  options.devices = "cpux2";
  options.log_every = 8;
  return options;
}

struct Ran {
  std::vector<std::string> step_lines = {};  // "epoch 1/2 | step  8/20"
  std::vector<json> metrics = {};
  std::string drawn = {};  // by the live display
};

// Runs with a clock that advances by `tick` seconds whenever it is read. Prints to `out` if given. What is
// drawn needs ProgressDisplay::kBar.
Ran ran(const TrainFlags& options, double tick, const char* out = nullptr) {
  const TempFolder folder;
  const auto printed = out ? std::string(out) : (folder / "out").string();
  const auto metrics_path = (folder / "run.jsonl").string();
  double now = 0;
  {
    RunOutputs outputs;
    outputs.metrics.emplace(metrics_path, /*overwrite=*/false);
    const auto plan = make_train_plan(options);
    const Redirect errors(STDERR_FILENO, (folder / "err").string());
    const Redirect file(STDOUT_FILENO, printed);
    Recorder record(plan, options, ColorMode::kNever, outputs, [&] { return now += tick; });
    try {
      run_and_keep(plan, options, record, outputs);
    } catch (const Error&) {  // the metrics show it
    }
  }
  Ran result;
  const std::regex step("(epoch [12]/2 \\| step +[0-9]+/20) .*");
  for (const auto& line : out ? std::vector<std::string>{} : lines_in(printed)) {
    std::smatch match;
    if (std::regex_match(line, match, step)) result.step_lines.push_back(match[1]);
  }
  result.drawn = testing::read_file((folder / "err").string());
  for (const auto& line : lines_in(metrics_path)) result.metrics.push_back(json::parse(line));
  return result;
}

// The step events without times.
std::vector<json> steps_in(const Ran& run) {
  std::vector<json> steps;
  for (const auto& event : run.metrics) {
    if (event.at("event") != "step") continue;
    json step;
    for (const auto* key : {"epoch", "step", "loss", "top1", "top5", "lr"}) step[key] = event.at(key);
    steps.push_back(step);
  }
  return steps;
}

const std::vector<std::string> kByLogEvery = {"epoch 1/2 | step  8/20", "epoch 1/2 | step 16/20",
                                              "epoch 2/2 | step  8/20", "epoch 2/2 | step 16/20",
                                              "epoch 2/2 | step 20/20"};

}  // namespace

TEST_CASE("slow steps have more printed lines, but the metrics follow --log-every") {
  const auto options = small_run();
  const auto quick = ran(options, 1e-3);
  CHECK(quick.step_lines == kByLogEvery);
  REQUIRE(steps_in(quick).size() == kByLogEvery.size());

  // At least two seconds per step: a line after the first step, then one every five steps or fewer.
  const auto slow = ran(options, 2);
  CHECK(slow.step_lines.front() == "epoch 1/2 | step  1/20");
  CHECK(slow.step_lines.size() >= kByLogEvery.size() + 4);
  for (const auto& line : kByLogEvery) {
    CHECK(std::count(slow.step_lines.begin(), slow.step_lines.end(), line) == 1);
  }
  const auto steps = steps_in(slow), expected = steps_in(quick);
  REQUIRE(steps.size() == expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    INFO(steps[i] << " " << expected[i]);
    for (const auto* key : {"epoch", "step", "top1", "top5", "lr"}) CHECK(steps[i][key] == expected[i][key]);
    CHECK(steps[i]["loss"].get<double>() == Approx(expected[i]["loss"].get<double>()).epsilon(1e-12));
  }
}

TEST_CASE(
    "a step time in the metrics is the mean since the last metrics line, whatever was printed between") {
  const auto slow = ran(small_run(), 2);
  for (const auto& event : slow.metrics) {
    if (event.at("event") != "step") continue;
    INFO(event);
    // The clock is read at least once per step and advances by 2 s.
    CHECK(event.at("step_ms").get<double>() >= 2000);
    CHECK(event.at("images_per_second").get<double>() * event.at("step_ms").get<double>() / 1e3 ==
          Approx(32));
  }
}

TEST_CASE("--log-every 1 prints every step, and a run of one step has one line") {
  auto options = small_run();
  options.log_every = 1;
  const auto each = ran(options, 2);
  CHECK(each.step_lines.size() == 40);
  CHECK(steps_in(each).size() == 40);
  options.log_every = 50;
  options.limit_steps = 1;
  const auto one = ran(options, 2);
  CHECK(one.step_lines == std::vector<std::string>{"epoch 1/2 | step  1/20"});
  CHECK(steps_in(one).size() == 1);
}

TEST_CASE("--quiet prints no step line, however slow the steps are") {
  auto options = small_run();
  options.quiet = true;
  const auto quiet = ran(options, 20);
  CHECK(quiet.step_lines.empty());
  CHECK(steps_in(quiet).size() == kByLogEvery.size());
}

TEST_CASE("--progress none prints no step line") {
  auto options = small_run();
  options.progress = ProgressDisplay::kNone;
  const auto none = ran(options, 20);
  CHECK(none.step_lines.empty());
  CHECK(steps_in(none).size() == kByLogEvery.size());
}

TEST_CASE("the live display takes the place of step lines, and changes no figure of the metrics and no bit") {
  auto options = small_run();
  options.print_weights_hash = true;
  const auto plain = ran(options, 1e-3);
  options.progress = ProgressDisplay::kBar;
  const auto live = ran(options, .3);  // due after each step
  CHECK(live.step_lines.empty());
  CHECK(steps_in(live) == steps_in(plain));
  REQUIRE(live.metrics.size() == plain.metrics.size());
  for (size_t i = 0; i < live.metrics.size(); ++i) {
    for (const auto* key : {"event", "train_loss", "train_accuracy", "test_loss", "test_accuracy",
                            "test_top5", "weights_sha256"}) {
      CHECK(live.metrics[i].value(key, json()) == plain.metrics[i].value(key, json()));
    }
  }
  CHECK(live.metrics.back().count("weights_sha256") == 1);
  size_t drawings = 0;
  for (size_t at = 0; (at = live.drawn.find("\x1b[J\r", at)) != std::string::npos; ++at) ++drawings;
  CHECK(drawings >= 40);
  for (const auto* text : {"epoch 1/2 ", "epoch 2/2 ", "   0%", " 100%", " left | ", " img/s | loss ",
                           " top1 ", "evaluating "}) {
    INFO(text);
    CHECK(live.drawn.find(text) != std::string::npos);
  }
  CHECK(live.drawn.ends_with("\r\x1b[J"));  // erased
}

TEST_CASE("a diverged run leaves nothing of the live display") {
  auto options = small_run();
  options.lr = 1e30;
  options.progress = ProgressDisplay::kBar;
  const auto diverged = ran(options, .3);
  CHECK(diverged.metrics.back().at("status") == "diverged");
  CHECK(diverged.drawn.find("epoch 1/2 ") != std::string::npos);
  CHECK(diverged.drawn.ends_with("\r\x1b[J"));
}

TEST_CASE("the last line of the metrics says how a run ended") {
  const auto done = ran(small_run(), 1e-3).metrics.back();
  CHECK(done.at("event") == "end");
  CHECK(done.at("status") == "done");
  CHECK(done.at("steps") == 40);
  CHECK(done.count("test_accuracy") == 1);

  auto options = small_run();
  options.lr = 1e30;
  const auto diverged = ran(options, 1e-3).metrics.back();
  CHECK(diverged.at("event") == "end");
  CHECK(diverged.at("status") == "diverged");
  CHECK(diverged.at("steps") == 8);  // where the loss was checked
  CHECK(diverged.at("reason").get<std::string>().rfind("the loss was not finite at epoch 1, step ", 0) == 0);

  const auto failed = ran(small_run(), 1e-3, "/dev/full").metrics.back();
  CHECK(failed.at("event") == "end");
  CHECK(failed.at("status") == "failed");
  CHECK(failed.at("reason").get<std::string>().rfind("cannot write to standard output: ", 0) == 0);
}

TEST_CASE("replicas that differ end the run, and the metrics say so") {
  auto options = small_run();
  options.trainer.check_sync = 5;
  auto plan = make_train_plan(options);
  int models = 0, steps = 0;
  std::string changed;
  plan.factory = [&, plain = plan.factory] {
    auto model = plain();
    if (++models != 2) return model;
    changed = model.module->named_parameters()[size_t{3}].key();
    model.loss_sum = [&steps, module = model.module, loss = model.loss_sum](const Batch& rows) {
      if (++steps == 7) module->parameters()[3].detach().view({-1})[0].add_(1);
      return loss(rows);
    };
    return model;
  };
  const TempFolder folder;
  const auto path = (folder / "run.jsonl").string();
  std::string error;
  {
    RunOutputs outputs;
    outputs.metrics.emplace(path, /*overwrite=*/false);
    const Redirect file(STDOUT_FILENO, (folder / "out").string());
    Recorder record(plan, options, ColorMode::kNever, outputs);
    try {
      run_and_keep(plan, options, record, outputs);
    } catch (const OutOfSyncError& thrown) {
      error = thrown.message();
    }
  }
  CHECK(error == "after step 10 the replicas differ: " + changed + " of rank 1 (cpu) is not that of rank 0");
  const auto last = json::parse(lines_in(path).back());
  CHECK(last.at("status") == "failed");
  CHECK(last.at("reason") == error);
}

TEST_CASE("a run ends when its validation has not become better for as many epochs as --patience") {
  auto options = small_run();
  options.epochs = 30;
  options.validation_share = .2;
  options.patience = 2;
  options.lr = 1e-12;  // nothing is learnt, so that the first epoch stays the best
  const auto run = ran(options, 1e-3);
  std::vector<json> epochs;
  for (const auto& event : run.metrics) {
    if (event.at("event") == "epoch") epochs.push_back(event);
  }
  REQUIRE(epochs.size() == 3);
  for (const auto& epoch : epochs) {
    CHECK(epoch.at("validation_accuracy") == epochs.front().at("validation_accuracy"));
    CHECK(epoch.contains("validation_loss"));
  }
  CHECK(run.metrics.back().at("status") == "done");
  CHECK(run.metrics.back().at("stopped_early") == true);
}

TEST_CASE("epochs are counted since the first one with the best validation") {
  struct Case {
    std::vector<double> validation;
    int64_t since;
  };
  for (const auto& [validation, since] :
       {Case{{}, 0}, Case{{.5}, 0}, Case{{.5, .5}, 1}, Case{{.5, .6, .4, .6}, 2}, Case{{-3, -2, -1}, 0}}) {
    RunPosition position{.validation = validation};
    CHECK(position.epochs_since_best() == since);
    CHECK(read_position(to_json(position)).validation == validation);
  }
  CHECK(RunPosition{.accuracy = {.9}, .validation = {.5}}.last_score() == .5);  // never of the test rows
  CHECK(RunPosition{.accuracy = {.9}}.last_score() == .9);
}
