// Runs that meet a loss that is not finite and go back to a checkpoint.
#include <torch/nn/module.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/app/train/run.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using lockstep::testing::read_file;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

// 2 epochs of 10 steps, a checkpoint every 4.
TrainFlags run_of(OnNan on_nan, const std::string& devices = "cpu") {
  TrainFlags options;
  options.data = "synthetic";
  options.limit_train = 320;
  options.limit_test = 64;
  options.batch_size = 32;
  options.epochs = 2;
  options.trainer.threads = 1;
  options.devices = devices;
  options.log_every = 1;
  options.quiet = true;
  options.on_nan = on_nan;
  return options;
}

using Spoil = void (*)(Outcome&, torch::nn::Module&);

void make_loss_nan(Outcome& outcome, torch::nn::Module&) {
  outcome.loss = outcome.loss * std::numeric_limits<double>::quiet_NaN();
}

// The loss stays what it is. The derivative of the root is infinite at 0.
void make_gradient_infinite(Outcome& outcome, torch::nn::Module& module) {
  const auto first = module.parameters().front();
  outcome.loss = outcome.loss + torch::sqrt(first - first.detach()).sum();
}

// The model whose loss or gradient is bad for the rows of the first replica's `bad`-th step, whenever they
// come.
ModelFactory with_bad_rows(const ModelFactory& plain, int bad, Spoil spoil = make_loss_nan) {
  struct Seen {
    std::mutex mutex;
    int steps = 0;
    torch::Tensor rows;
  };
  auto seen = std::make_shared<Seen>();
  return [plain, bad, spoil, seen, models = 0]() mutable {
    auto model = plain();
    if (++models > 1) return model;
    model.loss_sum = [bad, spoil, seen, module = model.module, loss = model.loss_sum](const Inputs& inputs) {
      auto outcome = loss(inputs);
      const std::lock_guard lock(seen->mutex);
      if (!module->is_training()) return outcome;
      if (++seen->steps == bad) seen->rows = inputs.X.clone();
      if (seen->rows.defined() && seen->rows.equal(inputs.X)) {
        spoil(outcome, *module);
      }
      return outcome;
    };
    return model;
  };
}

// The model whose loss is no number whenever it is trained, or evaluated.
ModelFactory with_bad_losses(const ModelFactory& plain, bool in_training) {
  return [plain, in_training] {
    auto model = plain();
    model.loss_sum = [in_training, module = model.module, loss = model.loss_sum](const Inputs& inputs) {
      auto outcome = loss(inputs);
      if (module->is_training() == in_training) make_loss_nan(outcome, *module);
      return outcome;
    };
    return model;
  };
}

struct EndedRun {
  std::vector<NamedTensor> weights;
  std::vector<json> events;
  std::string csv = {};
  std::string error = {};
};

EndedRun run_once(const TrainFlags& options, const TrainPlan& plan, const std::filesystem::path& path) {
  const RunFolder folder(path);
  folder.create();
  RunMetrics metrics(path, {.per_epoch = plan.steps_per_epoch, .total = plan.total_steps}, FileSizes{});
  CheckpointWriter writer(folder, {.keep = 3});
  const Terminal terminal(STDERR_FILENO, ColorMode::kNever);
  TrainRun run(plan, options, terminal,
               RunOutputs{.run_metrics = &metrics, .checkpoints = &writer, .every = {{.steps = 4}}});
  EndedRun result;
  try {
    run.run();
  } catch (const LossError& error) {
    result.error = error.message();
  }
  writer.finish();
  result.weights = run.weights();
  result.csv = read_file(path / kMetricsCsv);
  std::ifstream in(path / kMetricsJsonl);
  for (std::string line; std::getline(in, line);) result.events.push_back(json::parse(line));
  return result;
}

// The weights after these steps of the run alone, each from 1.
std::vector<NamedTensor> weights_after(const TrainPlan& plan, const std::vector<int64_t>& steps) {
  Trainer trainer(plan.factory, resident_sources(plan.data.set.train), resident_sources(plan.data.set.test),
                  plan.trainer);
  for (const auto step : steps) {
    const auto order = batch_order(plan.trainer.seed, (step - 1) / 10, plan.data.set.train.size());
    trainer.step(std::span(order).subspan(static_cast<size_t>((step - 1) % 10) * 32, 32));
  }
  return trainer.weights();
}

std::vector<int64_t> without(int64_t first, int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 20; ++step) {
    if (step < first || step > last) steps.push_back(step);
  }
  return steps;
}

void check_equal(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(found[i].name);
    CHECK(found[i].tensor.equal(expected[i].tensor));
  }
}

// The steps of the run that the metrics have, in their order.
std::vector<int64_t> steps_in(const std::vector<json>& events) {
  std::vector<int64_t> steps;
  for (const auto& event : events) {
    if (event.at("event") != "step") continue;
    steps.push_back((event.at("epoch").get<int64_t>() - 1) * 10 + event.at("step").get<int64_t>());
  }
  return steps;
}

std::vector<json> named(const std::string& name, std::vector<json> events) {
  std::erase_if(events, [&](const json& event) { return event.at("event") != name; });
  return events;
}

}  // namespace

TEST_CASE(
    "with --on-nan skip a run ends as one without the bad step, with rollback as one without all since") {
  const auto devices = GENERATE(std::string("cpu"), std::string("cpux2"));
  const auto on_nan = GENERATE(OnNan::kSkip, OnNan::kRollback);
  const int64_t first = on_nan == OnNan::kSkip ? 7 : 5;  // the checkpoint is of step 4
  INFO(devices << ", " << name_of(kOnNanNames, on_nan));
  const auto options = run_of(on_nan, devices);
  const auto plan = make_train_plan(options);
  auto bad = plan;
  bad.factory = with_bad_rows(plan.factory, 7);
  const TempFolder folder;
  const auto run = run_once(options, bad, folder / "run");
  CHECK(run.error.empty());
  check_equal(run.weights, weights_after(plan, without(first, 7)));
  CHECK(steps_in(run.events) == without(first, 7));
  const auto rows = named("step", run.events).size() + named("epoch", run.events).size();
  CHECK(static_cast<size_t>(std::count(run.csv.begin(), run.csv.end(), '\n')) == 1 + rows);
  const auto back = named("went_back", run.events);
  REQUIRE(back.size() == 1);
  CHECK(back[0].at("steps") == 4);
  CHECK(back[0].at("left_out") == json::array({json::array({first, 7})}));
  CHECK(run.events.back().at("status") == "done");
}

TEST_CASE("a bad first step and a bad last one can be left out, too") {
  const auto step = GENERATE(1, 10);
  const auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto bad = plan;
  bad.factory = with_bad_rows(plan.factory, step);
  const TempFolder folder;
  const auto run = run_once(options, bad, folder / "run");
  CHECK(run.error.empty());
  check_equal(run.weights, weights_after(plan, without(step, step)));
}

TEST_CASE("a resumed run leaves out what was left out before its break") {
  auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto cut = plan;
  cut.factory = with_bad_rows(plan.factory, 7);
  cut.total_steps = 8;
  const TempFolder folder;
  run_once(options, cut, folder / "run");
  const auto found = newest_checkpoint(RunFolder(folder / "run"), [](const auto&) {});
  REQUIRE(found);
  CHECK(found->state.trainer.steps == 8);
  const Terminal terminal(STDERR_FILENO, ColorMode::kNever);
  options.on_nan = OnNan::kStop;
  TrainRun rest(plan, options, terminal, RunOutputs{}, &found->state);
  rest.run();
  check_equal(rest.weights(), weights_after(plan, without(7, 7)));
  CHECK(to_json(found->state.progress.left_out) == json::array({json::array({7, 7})}));
}

TEST_CASE("a resumed run leaves the checkpoint that it goes on from as it was") {
  const auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto cut = plan;
  cut.total_steps = 6;
  const TempFolder path;
  const RunFolder folder(path / "run");
  run_once(options, cut, folder.path());
  const auto state_file = folder.checkpoint(6) / "state.json";
  const auto before = read_file(state_file);
  const auto found = newest_checkpoint(folder, [](const auto&) {});
  REQUIRE(found);
  RunMetrics metrics(folder.path(), {.per_epoch = 10, .total = 20}, found->state.file_bytes);
  CheckpointWriter writer(folder, {.keep = 10});
  const Terminal terminal(STDERR_FILENO, ColorMode::kNever);
  TrainRun(plan, options, terminal,
           RunOutputs{.run_metrics = &metrics, .checkpoints = &writer, .every = {{.steps = 4}}},
           &found->state)
      .run();
  writer.finish();
  CHECK(read_file(state_file) == before);
  CHECK(folder.steps() == std::vector<int64_t>{0, 4, 6, 8, 12, 16, 20});
}

TEST_CASE(
    "a step that makes weights infinite is found before a checkpoint or by a later loss, and left out") {
  // Steps 4 and 8 have checkpoints. What step 6 does shows in the loss of step 7.
  const auto [step, first, last] = GENERATE(std::tuple{8, 8, 8}, std::tuple{6, 6, 8}, std::tuple{20, 20, 20});
  INFO("step " << step);
  const auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto bad = plan;
  bad.factory = with_bad_rows(plan.factory, step, make_gradient_infinite);
  const TempFolder folder;
  const auto run = run_once(options, bad, folder / "run");
  CHECK(run.error.empty());
  check_equal(run.weights, weights_after(plan, without(first, last)));
}

// The checkpoint of step 8 itself is bad: nothing behind it can mend that.
TEST_CASE("a run stops when all steps since its checkpoint are left out and the test loss is still bad") {
  const auto on_nan = GENERATE(OnNan::kSkip, OnNan::kRollback);
  const TempFolder folder;
  const auto options = run_of(on_nan);
  auto plan = make_train_plan(options);
  plan.factory = with_bad_losses(plan.factory, /*in_training=*/false);
  const auto ended = run_once(options, plan, folder / "run");
  CHECK(ended.error ==
        "the test loss after epoch 1 was not finite, with the weights of the checkpoint of step 8");
  REQUIRE(ended.events.size() >= 2);
  const auto& went_back = ended.events.at(ended.events.size() - 2);  // the last one is "end"
  CHECK(went_back.at("left_out").dump() == (on_nan == OnNan::kSkip ? "[[10,10],[9,10]]" : "[[9,10]]"));
}

// The checkpoint is written before the evaluation: no step comes behind it.
TEST_CASE("a run that ends within an epoch stops when its last checkpoint's test loss is bad") {
  const auto on_nan = GENERATE(OnNan::kSkip, OnNan::kRollback);
  const TempFolder folder;
  auto options = run_of(on_nan);
  options.limit_steps = 7;
  auto plan = make_train_plan(options);
  plan.factory = with_bad_losses(plan.factory, /*in_training=*/false);
  const auto ended = run_once(options, plan, folder / "run");
  CHECK(ended.error ==
        "the test loss after epoch 1 was not finite, with the weights of the checkpoint of step 7");
  REQUIRE(named("went_back", ended.events).size() == 1);
  CHECK(named("went_back", ended.events).front().at("left_out").empty());
}

TEST_CASE("a run that has diverged stops after it has gone back ten times") {
  const auto options = run_of(OnNan::kSkip);
  auto plan = make_train_plan(options);
  plan.factory = with_bad_losses(plan.factory, /*in_training=*/true);
  const TempFolder folder;
  const auto run = run_once(options, plan, folder / "run");
  CHECK_THAT(run.error, Catch::Matchers::ContainsSubstring("after the run had gone back 10 times"));
  CHECK(run.events.back().at("status") == "diverged");
}

TEST_CASE("by default a run stops at the bad step, and no checkpoint has its weights") {
  const auto options = run_of(OnNan::kStop);
  auto plan = make_train_plan(options);
  plan.factory = with_bad_rows(plan.factory, 8);
  const TempFolder folder;
  const auto run = run_once(options, plan, folder / "run");
  CHECK_THAT(run.error, Catch::Matchers::ContainsSubstring("not finite at epoch 1, step 8"));
  CHECK(RunFolder(folder / "run").steps() == std::vector<int64_t>{4});
}
