// The training that benchmarks time.
#include <torch/nn/module.h>

#include <lockstep/tests/catch.h>

#include <memory>

#include <lockstep/app/report/timed_training.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stopwatch.h>

using namespace lockstep;

namespace {

// In fp16, with a loss whose gradients are infinite in the first `bad` steps, which are skipped. The
// derivative of the root is infinite at 0.
TrainPlan plan_with_skipped_steps(int bad) {
  BenchTrainOptions options;
  options.train.data.path = "synthetic";
  options.train.data.limit_train = 64;
  options.train.batch_size = 8;
  options.train.trainer.replica.precision = Precision::kFp16;
  auto plan = plan_on(options, {torch::Device(torch::kCPU)}, /*threads=*/1);
  plan.factory = [plain = plan.factory, bad, steps = std::make_shared<int>(0)] {
    auto model = plain();
    model.loss_sum = [bad, steps, module = model.module, loss = model.loss_sum](const Batch& rows) {
      auto outcome = loss(rows);
      const auto first = module->parameters().front();
      if (++*steps <= bad) outcome.loss = outcome.loss + torch::sqrt(first - first.detach()).sum();
      return outcome;
    };
    return model;
  };
  return plan;
}

}  // namespace

TEST_CASE("a training in fp16 is warm once a step has changed its weights") {
  const auto plan = plan_with_skipped_steps(10);
  TimedTraining training(plan);
  warm_step_seconds(training);
  CHECK(training.trainer().steps_taken() == 12);
  CHECK(training.updates() == 2);
}

TEST_CASE("steps that are skipped in fp16 do not count in the time of a step") {
  const auto plan = plan_with_skipped_steps(10);
  TimedTraining training(plan);
  Stopwatch watch;
  const double seconds = training.seconds_per_step(20);
  const double elapsed = watch.lap();
  CHECK(training.updates() == 10);
  CHECK(seconds * 10 <= elapsed);
  CHECK(seconds * 20 > elapsed);  // as long as 20 steps would be if each of them counted
}

TEST_CASE("a time of steps that are all skipped in fp16 is refused") {
  const auto plan = plan_with_skipped_steps(4);
  TimedTraining training(plan);
  CHECK_THROWS_AS(training.seconds_per_step(4), NumericError);
  CHECK(training.seconds_per_step(1) > 0);
}
