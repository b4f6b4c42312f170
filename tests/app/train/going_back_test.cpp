// Runs that meet a loss that is not finite and go back to a checkpoint.
#include <torch/nn/module.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/app/train/going_back.h>
#include <lockstep/app/train/run.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/data/weights_hash.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using lockstep::testing::read_file;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

// 2 epochs of 10 steps, a checkpoint every 4 where a folder keeps them.
TrainFlags run_of(OnNan on_nan, const std::string& devices = "cpu") {
  TrainFlags options;
  options.data.path = "synthetic";
  options.data.limit_train = 320;
  options.data.limit_test = 64;
  options.batch_size = 32;
  options.epochs = 2;
  options.trainer.threads = 1;
  options.devices = devices;
  options.log_every = 1;
  options.quiet = true;
  options.on_nan = on_nan;
  options.checkpoint_every = "4";
  options.print_weights_hash = true;
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
    model.loss_sum = [bad, spoil, seen, module = model.module, loss = model.loss_sum](const Batch& inputs) {
      auto outcome = loss(inputs);
      const std::lock_guard lock(seen->mutex);
      if (!module->is_training()) return outcome;
      if (++seen->steps == bad) seen->rows = inputs.input().clone();
      if (seen->rows.defined() && seen->rows.equal(inputs.input())) {
        spoil(outcome, *module);
      }
      return outcome;
    };
    return model;
  };
}

// The model whose loss is no number in its `first`-th to `last`-th step, whatever the rows are.
ModelFactory with_bad_steps(const ModelFactory& plain, int first, int last) {
  return [plain, first, last, seen = std::make_shared<int>(0)] {
    auto model = plain();
    model.loss_sum = [first, last, seen, module = model.module, loss = model.loss_sum](const Batch& inputs) {
      auto outcome = loss(inputs);
      if (!module->is_training()) return outcome;
      if (++*seen >= first && *seen <= last) make_loss_nan(outcome, *module);
      return outcome;
    };
    return model;
  };
}

// The model whose loss is no number whenever it is trained, or evaluated.
ModelFactory with_bad_losses(const ModelFactory& plain, bool in_training) {
  return [plain, in_training] {
    auto model = plain();
    model.loss_sum = [in_training, module = model.module, loss = model.loss_sum](const Batch& inputs) {
      auto outcome = loss(inputs);
      if (module->is_training() == in_training) make_loss_nan(outcome, *module);
      return outcome;
    };
    return model;
  };
}

struct EndedRun {
  std::optional<std::string> weights;  // their hash, of a run that is done
  std::vector<json> events;
  std::string csv = {};
  std::string error = {};
};

// Runs in this folder, from the start or from this checkpoint of it.
EndedRun run_in(const std::filesystem::path& path, const TrainFlags& options, const TrainPlan& plan,
                const FoundCheckpoint* from = nullptr) {
  const RunFolder folder(path);
  if (!from) folder.create();
  RunOutputs outputs;
  outputs.kept.metrics = std::make_unique<RunMetrics>(
      path, plan.metrics, RunMetrics::Steps{.per_epoch = plan.steps_per_epoch, .total = plan.total_steps},
      from ? from->state.file_bytes : FileSizes{});
  outputs.kept.plots = std::make_unique<RunPlots>([] {});
  outputs.kept.checkpoints = std::make_unique<CheckpointWriter>(folder, WriterOptions{.keep = 10});
  EndedRun result;
  Recorder record(plan, options, ColorMode::kNever, outputs);
  try {
    result.weights =
        run_and_keep(plan, options, record, outputs, from ? std::optional(from->state) : std::nullopt)
            .weights_sha256;
  } catch (const NumericError& error) {
    result.error = error.message();
  }
  outputs.kept.checkpoints->finish();
  result.csv = read_file(path / kMetricsCsv);
  std::ifstream in(path / kMetricsJsonl);
  for (std::string line; std::getline(in, line);) result.events.push_back(json::parse(line));
  return result;
}

// The hash of the weights after these steps of the run alone, each from 1.
std::string weights_after(const TrainPlan& plan, const std::vector<int64_t>& steps) {
  Trainer trainer(plan.factory, plan.data.set.train.sources, plan.data.set.test.sources, plan.trainer);
  for (const auto step : steps) {
    const auto order = batch_order(plan.trainer.seed, (step - 1) / 10, plan.data.set.train.rows);
    trainer.step(std::span(order).subspan(static_cast<size_t>((step - 1) % 10) * 32, 32));
  }
  return weights_sha256(trainer.weights());
}

std::vector<int64_t> without(int64_t first, int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 20; ++step) {
    if (step < first || step > last) steps.push_back(step);
  }
  return steps;
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
  const auto run = run_in(folder / "run", options, bad);
  CHECK(run.error.empty());
  CHECK(run.weights == weights_after(plan, without(first, 7)));
  CHECK(steps_in(run.events) == without(first, 7));
  const auto rows = named("step", run.events).size() + named("epoch", run.events).size();
  CHECK(static_cast<size_t>(std::count(run.csv.begin(), run.csv.end(), '\n')) == 1 + rows);
  const auto back = named("went_back", run.events);
  REQUIRE(back.size() == 1);
  CHECK(back[0].at("steps") == 4);
  CHECK(back[0].at("left_out") == json::array({json::array({first, 7})}));
  CHECK(run.events.back().at("status") == "done");
}

TEST_CASE("what is left out reaches back from the bad step as far as steps before it have been in vain") {
  struct Case {
    OnNan on_nan;
    std::vector<StepRange> before;
    int64_t checkpoint, bad;
    std::optional<StepRange> expected;
  };
  const std::vector<Case> cases = {
      {OnNan::kSkip, {}, 4, 7, StepRange{7, 7}},
      {OnNan::kRollback, {}, 4, 7, StepRange{5, 7}},
      {OnNan::kSkip, {{7, 7}}, 4, 7, StepRange{6, 7}},  // without step 7 the weights are bad all the same
      {OnNan::kSkip, {{6, 6}}, 4, 7, StepRange{5, 7}},
      {OnNan::kSkip, {{2, 2}}, 4, 7, StepRange{7, 7}},  // before the checkpoint
      {OnNan::kSkip, {{5, 7}}, 4, 7, std::nullopt},
      {OnNan::kRollback, {{5, 7}}, 4, 7, std::nullopt},
      {OnNan::kSkip, {}, 7, 7, std::nullopt}};  // the checkpoint itself is bad
  for (const auto& [on_nan, before, checkpoint, bad, expected] : cases) {
    RunPosition position;
    position.left_out = before;
    INFO(name_of(kOnNanNames, on_nan) << ", step " << bad << ", left out " << to_json(before));
    const auto found = GoingBack(on_nan).leave_out(position, checkpoint, bad);
    CHECK((found == expected));
    auto after = before;
    if (expected) after.push_back(*expected);
    CHECK(to_json(position.left_out) == to_json(after));
  }
}

// From a scale of 1 the 17th skipped step in a row, the run's 20th, ends with an error of the trainer, before
// any line or checkpoint has looked at the losses.
TEST_CASE("in fp16 a run goes back to before its first bad loss, also when the loss scale is used up first") {
  const auto on_nan = GENERATE(OnNan::kStop, OnNan::kSkip, OnNan::kRollback);
  INFO(name_of(kOnNanNames, on_nan));
  auto options = run_of(on_nan);
  options.trainer.replica.precision = Precision::kFp16;
  options.data.limit_train = 32 * 30;
  options.epochs = 1;
  options.log_every = 50;
  options.checkpoint_every = "50";
  auto plan = make_train_plan(options);
  plan.trainer.replica.loss_scale.initial = 1;
  plan.factory = with_bad_steps(plan.factory, 4, 20);
  const TempFolder folder;
  const auto run = run_in(folder / "run", options, plan);
  const auto back = named("went_back", run.events);
  if (on_nan == OnNan::kStop) {
    CHECK(run.error.find("the loss was not finite at epoch 1, step 4") != std::string::npos);
    CHECK(back.empty());
    return;
  }
  CHECK(run.error.empty());
  REQUIRE(back.size() == 1);
  CHECK(back[0].at("steps") == 0);
  CHECK(back[0].at("left_out") == json::array({json::array({on_nan == OnNan::kSkip ? 4 : 1, 4})}));
  CHECK(run.events.back().at("status") == "done");
}

TEST_CASE("a bad first step and a bad last one can be left out, too") {
  const auto step = GENERATE(1, 10);
  const auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto bad = plan;
  bad.factory = with_bad_rows(plan.factory, step);
  const TempFolder folder;
  const auto run = run_in(folder / "run", options, bad);
  CHECK(run.error.empty());
  CHECK(run.weights == weights_after(plan, without(step, step)));
}

TEST_CASE("a resumed run leaves out what was left out before its break") {
  auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto cut = plan;
  cut.factory = with_bad_rows(plan.factory, 7);
  cut.total_steps = 8;
  const TempFolder folder;
  run_in(folder / "run", options, cut);
  const auto found = newest_checkpoint(RunFolder(folder / "run"), [](const auto&) {});
  REQUIRE(found);
  CHECK(found->state.trainer.steps == 8);
  options.on_nan = OnNan::kStop;
  const auto rest = run_in(folder / "run", options, plan, &*found);
  CHECK(rest.weights == weights_after(plan, without(7, 7)));
  CHECK(to_json(found->state.position.left_out) == json::array({json::array({7, 7})}));
}

TEST_CASE("a resumed run leaves the checkpoint that it goes on from as it was") {
  const auto options = run_of(OnNan::kSkip);
  const auto plan = make_train_plan(options);
  auto cut = plan;
  cut.total_steps = 6;
  const TempFolder path;
  const RunFolder folder(path / "run");
  run_in(folder.path(), options, cut);
  const auto state_file = folder.checkpoint(6) / "state.json";
  const auto before = read_file(state_file);
  const auto found = newest_checkpoint(folder, [](const auto&) {});
  REQUIRE(found);
  run_in(folder.path(), options, plan, &*found);
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
  const auto run = run_in(folder / "run", options, bad);
  CHECK(run.error.empty());
  CHECK(run.weights == weights_after(plan, without(first, last)));
}

// The checkpoint of step 8 itself is bad: nothing behind it can mend that.
TEST_CASE("a run stops when all steps since its checkpoint are left out and the test loss is still bad") {
  const auto on_nan = GENERATE(OnNan::kSkip, OnNan::kRollback);
  const TempFolder folder;
  const auto options = run_of(on_nan);
  auto plan = make_train_plan(options);
  plan.factory = with_bad_losses(plan.factory, /*in_training=*/false);
  const auto ended = run_in(folder / "run", options, plan);
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
  const auto ended = run_in(folder / "run", options, plan);
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
  const auto run = run_in(folder / "run", options, plan);
  CHECK_THAT(run.error, Catch::Matchers::ContainsSubstring("after the run had gone back 10 times"));
  CHECK(run.events.back().at("status") == "diverged");
}

TEST_CASE("a run that left out all its steps fails, in every precision") {
  const auto precision = GENERATE(Precision::kFp32, Precision::kFp16);
  const auto on_nan = GENERATE(OnNan::kSkip, OnNan::kRollback);
  auto options = run_of(on_nan);
  options.data.limit_train = 32 * 2;  // 2 epochs of 2 steps
  options.trainer.replica.precision = precision;
  auto plan = make_train_plan(options);
  plan.factory = with_bad_losses(plan.factory, /*in_training=*/true);
  const TempFolder folder;
  const auto run = run_in(folder / "run", options, plan);
  CHECK(run.error == "nothing was trained: --on-nan left out all steps, 1 to 4");
  CHECK(named("epoch", run.events).size() == 2);
  CHECK(run.events.back().at("status") == "diverged");
}

TEST_CASE("by default a run stops at the bad step, and no checkpoint has its weights") {
  const auto options = run_of(OnNan::kStop);
  auto plan = make_train_plan(options);
  plan.factory = with_bad_rows(plan.factory, 8);
  const TempFolder folder;
  const auto run = run_in(folder / "run", options, plan);
  CHECK_THAT(run.error, Catch::Matchers::ContainsSubstring("not finite at epoch 1, step 8"));
  CHECK(RunFolder(folder / "run").steps() == std::vector<int64_t>{4});
}
