// The lines of a training run, written out by hand.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/notices.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/tests/app/run_files/classified.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

TrainPlan plan_of(int64_t epochs, int64_t steps_per_epoch) {
  TrainPlan plan;
  plan.data.set.row_noun = "image";
  plan.data.set.spec = {{.name = "images", .dtype = torch::kUInt8, .row_shape = {1, 28, 28}}};
  plan.data.set.classes = 10;
  plan.epochs = epochs;
  plan.steps_per_epoch = steps_per_epoch;
  return plan;
}

// The steps of 1000 images at this speed.
StepInterval interval_of(const RowSums& sums, double images_per_second) {
  return {.end = 1000 / images_per_second, .rows = 1000, .sums = sums};
}

EpochReport epoch_of_images() {
  EpochReport report;
  report.epoch = 1;
  report.trained = {.lr = .2, .sums = testing::classified(2302.6, 1000, 100)};
  report.seconds = .75;
  report.test = testing::classified(230.17, 100, 10);
  return report;
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    widest = std::max(widest, end - begin);
    begin = end + 1;
  }
  return widest;
}

}  // namespace

TEST_CASE("a step line has epoch, step, loss, accuracies and speed") {
  CHECK(step_line(interval_of(testing::classified(2302.8, 1000, 97, 505), 96'517.6), {.epoch = 1, .step = 50},
                  plan_of(10, 235)) ==
        "epoch  1/10 | step  50/235 | loss 2.3028 | top1  9.7% top5 50.5% | 96,518 img/s");
}

TEST_CASE("a step line counts rows unless they are images") {
  auto plan = plan_of(10, 235);
  plan.data.set.row_noun = "row";
  CHECK(step_line(interval_of(testing::classified(2302.8, 1000, 97, 505), 96'517.6), {.epoch = 1, .step = 50},
                  plan) ==
        "epoch  1/10 | step  50/235 | loss 2.3028 | top1  9.7% top5 50.5% | 96,518 rows/s");
}

TEST_CASE("steps that fp16 skips have a line below their step's and their epoch's, and keys in the metrics") {
  auto steps = interval_of(testing::classified(2302.8, 1000, 97, 505), 96'517.6);
  steps.loss_scale = 65536;
  const RunPosition position{.epoch = 1, .step = 50};
  const auto line = step_line(steps, position, plan_of(10, 235));
  CHECK(line.find('\n') == std::string::npos);
  CHECK(step_json(steps, position).at("skipped") == 0);
  steps.skipped = 2;
  steps.loss_scale = 16384;
  const std::string below = "\n    2 steps skipped, gradients not finite | loss scale 16384";
  CHECK(step_line(steps, position, plan_of(10, 235)) == line + below);
  CHECK(step_json(steps, position).at("skipped") == 2);
  CHECK(step_json(steps, position).at("loss_scale") == 16384);
  auto report = epoch_of_images();
  const auto epoch = epoch_lines(report, plan_of(10, 235));
  CHECK_FALSE(epoch_json(report).contains("skipped"));  // not in fp16
  report.trained.skipped = 2;
  report.trained.loss_scale = 16384;
  CHECK(epoch_lines(report, plan_of(10, 235)) == epoch + below);
  CHECK(epoch_json(report).at("skipped") == 2);
  steps.skipped = 1'000'000;
  steps.loss_scale = 1. / 65536;
  CHECK(widest_line(step_line(steps, position, plan_of(10, 235))) <= 80);
}

TEST_CASE("a step line that would have more than 80 columns leaves out the number of epochs, then of steps") {
  const auto sums = testing::classified(2302.8, 1000, 97, 505);
  const RunPosition early{.epoch = 1, .step = 100};
  CHECK(step_line(interval_of(sums, 199.1), early, plan_of(10, 10'000)) ==
        "epoch  1/10 | step   100/10000 | loss 2.3028 | top1  9.7% top5 50.5% | 199 img/s");
  CHECK(step_line(interval_of(sums, 1990.6), early, plan_of(10, 10'000)) ==
        "epoch  1 | step   100/10000 | loss 2.3028 | top1  9.7% top5 50.5% | 1,991 img/s");
  CHECK(step_line(interval_of(testing::classified(2302.8, 1000, 1000, 1000), 98'765),
                  {.epoch = 1000, .step = 60'000}, plan_of(1000, 60'000)) ==
        "epoch 1000 | step 60000 | loss 2.3028 | top1 100.0% top5 100.0% | 98,765 img/s");
}

TEST_CASE("an epoch has a line of losses and accuracies, and one of the rate and the phases of a step") {
  auto report = epoch_of_images();
  CHECK(epoch_lines(report, plan_of(10, 235)) ==
        "epoch  1/10 | train loss 2.3026 acc 0.100 | test loss 2.3017 acc 0.100 | 0.8 s\n"
        "    lr 0.2");
  report.trained.steps = 2;
  report.trained.times = StepTimes{.data = .0002, .compute = .0062, .sync = 0, .update = .0004};
  CHECK(epoch_lines(report, plan_of(10, 235)) ==
        "epoch  1/10 | train loss 2.3026 acc 0.100 | test loss 2.3017 acc 0.100 | 0.8 s\n"
        "    lr 0.2 | ms per step: data 0.1, compute 3.1, sync 0.0, update 0.2");
}

TEST_CASE("a run that counts no accuracy shows its metrics, if there are any, and closes with its loss") {
  RowSums regression{
      .loss = 500, .rows = 1000, .weight = 1000, .metrics = {{.kind = {.name = "mae"}, .sum = 250}}};
  RowSums own_loss{.loss = 500, .rows = 1000, .weight = 1000};
  auto plan = plan_of(10, 235);
  plan.data.set.row_noun = "row";
  plan.trainer.devices = {torch::kCPU};
  const RunPosition position{.epoch = 1, .step = 50};
  CHECK(step_line(interval_of(regression, 2000), position, plan) ==
        "epoch  1/10 | step  50/235 | loss 0.5000 | mae 0.2500 | 2,000 rows/s");
  CHECK(step_line(interval_of(own_loss, 2000), position, plan) ==
        "epoch  1/10 | step  50/235 | loss 0.5000 | 2,000 rows/s");
  EpochReport report{
      .epoch = 1, .trained = {.lr = .2, .sums = regression}, .seconds = .75, .test = regression};
  CHECK(epoch_lines(report, plan) ==
        "epoch  1/10 | train loss 0.5000 mae 0.250 | test loss 0.5000 mae 0.250 | 0.8 s\n    lr 0.2");
  report.trained.sums = report.test = own_loss;
  CHECK(epoch_lines(report, plan) ==
        "epoch  1/10 | train loss 0.5000 | test loss 0.5000 | 0.8 s\n    lr 0.2");
  CHECK(epoch_json(report).at("test_loss") == .5);
  CHECK(closing_line({.test_loss = .03125, .seconds_per_epoch = 3}, plan) ==
        "test loss: 0.0312, 3.0 sec/epoch on [cpu]");
  CHECK(done_json({.test_loss = .03125}).at("test_loss") == .03125);
  CHECK_FALSE(done_json({.test_loss = .03125}).contains("test_accuracy"));
}

TEST_CASE("an epoch whose steps were all left out has no loss and no rate") {
  auto report = epoch_of_images();
  report.trained.sums = zero_sums(testing::kClassified);
  CHECK(epoch_lines(report, plan_of(10, 235)) ==
        "epoch  1/10 | all steps left out | test loss 2.3017 acc 0.100 | 0.8 s");
}

TEST_CASE("step and epoch lines fit 80 columns with large figures too") {
  const auto slow = interval_of(testing::classified(61972.1, 1000, 982, 999), 254);
  const auto fast = interval_of(testing::classified(2302.6, 1000, 982, 999), 987'654);
  CHECK(step_line(slow, {.epoch = 100, .step = 235}, plan_of(100, 235)).size() <= 80);
  CHECK(step_line(fast, {.epoch = 10, .step = 235}, plan_of(10, 235)).size() <= 80);
  for (const int64_t steps : {10'000, 60'000}) {
    for (const int64_t epochs : {1, 10, 100}) {
      const RunPosition last{.epoch = epochs, .step = steps};
      CHECK(step_line(fast, last, plan_of(epochs, steps)).size() <= 80);
      CHECK(step_line(slow, last, plan_of(epochs, steps)).size() <= 80);
    }
  }

  auto epoch = epoch_of_images();
  epoch.epoch = 10;
  epoch.trained.lr = 1.234567e-5;
  epoch.seconds = 361.2;
  epoch.trained.steps = 1;
  epoch.trained.times = StepTimes{.data = .0099, .compute = 2.0041, .sync = .1, .update = .0128};
  CHECK(widest_line(epoch_lines(epoch, plan_of(10, 235))) <= 80);
}

TEST_CASE("the plan writes counts from 1,000 on with commas") {
  auto plan = plan_of(1, 3);
  plan.trainer.devices.assign(2, torch::Device(torch::kCPU));
  plan.data.set.train.rows = 7100;
  plan.data.set.test.rows = 1000;
  plan.memory_estimate = 9'872'600'000;
  plan.batch_size = 3000;
  CHECK_THAT(describe(plan), ContainsSubstring("3,000 images per step, 1,500 per replica; 3 steps per epoch, "
                                               "the last with 1,100\n") &&
                                 ContainsSubstring("about 9,873 MB resident at the peak"));
  plan.batch_size = 3001;
  CHECK_THAT(describe(plan), ContainsSubstring("3,001 images per step, 1,501 or 1,500 per replica;"));
  plan.trainer.split = {2, 1};
  plan.batch_size = 3000;
  CHECK_THAT(describe(plan), ContainsSubstring("3,000 images per step, split 2,000:1,000;"));
}

TEST_CASE("there is a notice of batches too small for the replicas or the micro-batches") {
  using Texts = std::vector<std::string>;
  auto plan = plan_of(1, 1);
  plan.trainer.devices.assign(4, torch::Device(torch::kCPU));
  plan.data.set.train.rows = 100;
  plan.batch_size = 4;
  CHECK(batch_notices(plan).empty());
  plan.batch_size = 3;
  CHECK(batch_notices(plan) == Texts{"4 replicas share a batch of 3 images: some of them compute nothing"});

  plan.batch_size = 10;  // shards of 3, 3, 2 and 2 images
  plan.trainer.accumulate = 2;
  CHECK(batch_notices(plan).empty());
  plan.trainer.accumulate = 3;
  CHECK(batch_notices(plan) == Texts{"--accumulate 3 is more than the 2 images of the smallest shard: its "
                                     "micro-batches have one each"});
  plan.trainer.split = {1, 0, 0, 1};  // 5 images each, and none as wanted
  CHECK(batch_notices(plan).empty());

  plan.data.set.train.rows = 1;  // fewer than a batch
  plan.trainer.split = {};
  CHECK(batch_notices(plan) == Texts{"4 replicas share a batch of 1 image: some of them compute nothing",
                                     "--accumulate 3 is more than the 1 image of the smallest shard: its "
                                     "micro-batches have one each"});
}

TEST_CASE("there is a notice of --shard optimizer where the optimizer keeps nothing") {
  auto plan = plan_of(1, 1);
  plan.trainer.devices.assign(4, torch::Device(torch::kCPU));
  CHECK_FALSE(shard_notice(plan));
  plan.trainer.shard = Shard::kOptimizer;
  CHECK(shard_notice(plan) ==
        "--shard optimizer shares out nothing: SGD without momentum keeps nothing beside "
        "the weights");
  const auto with = [&](const std::function<void(TrainerOptions&)>& change) {
    auto other = plan;
    change(other.trainer);
    return shard_notice(other);
  };
  CHECK_FALSE(with([](auto& o) { o.replica.optimizer.momentum = .9; }));
  CHECK_FALSE(with([](auto& o) { o.replica.optimizer.kind = OptimizerKind::kAdam; }));
  CHECK_FALSE(with([](auto& o) { o.ema = .9; }));
  CHECK_FALSE(with([](auto& o) { o.shard = Shard::kGradients; }));
  CHECK_FALSE(with([](auto& o) { o.devices.resize(1, torch::kCPU); }));  // the plan says so
}

TEST_CASE("a loss that is not finite is laid to numbers of the data that are not") {
  TrainPlan plan;
  plan.data.set.test_faults.not_finite = "test.X has inf in row 3";
  CHECK_THAT(diverged_hint(plan), ContainsSubstring("try a learning rate below"));
  CHECK(diverged_hint(plan, /*in_evaluation=*/true) ==
        "test.X has inf in row 3: leave such rows out of the data, or replace the number");
  plan.data.set.train_faults.not_finite = "train.y has nan in row 0";
  CHECK_THAT(diverged_hint(plan), ContainsSubstring("train.y has nan in row 0: leave such rows out"));
}
