// Trainers with two steps in flight: step() returns before the replicas have computed.
#include <lockstep/tests/catch.h>

#include <latch>
#include <utility>

#include <lockstep/parallel/main_thread.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("with two steps in flight training gives the same sums and weights") {
  const auto trained = [](int in_flight) {
    auto options = options_for(3);
    options.in_flight = in_flight;
    const auto rows = std::make_shared<RowSource>(32);
    auto trainer = make_trainer(lenet_factory(), options, rows);
    std::vector<double> losses;
    for (int round = 0; round < 3; ++round) {
      for (const auto& batch : kBatches) trainer.step(batch);
      losses.push_back(trainer.take_sums().loss);
      losses.push_back(trainer.evaluate().loss_sum);
    }
    CHECK(trainer.steps_taken() == 15);
    trainer.step(kBatches[0]);
    return std::pair(losses, trainer.weights());  // waits for that step
  };
  const auto [losses, weights] = trained(1);
  const auto [two_losses, two_weights] = trained(2);
  CHECK(losses == two_losses);
  for (size_t i = 0; i < weights.size(); ++i) {
    INFO(weights[i].name);
    CHECK(torch::equal(weights[i].tensor, two_weights[i].tensor));
  }
}

TEST_CASE("with two steps in flight step() returns while the replicas compute") {
  std::latch returned(1);  // no replica computes before step() has returned
  const ModelFactory waiting = [&] {
    auto model = lenet_factory()();
    model.loss_sum = [&returned, loss = model.loss_sum](const Inputs& rows) {
      returned.wait();
      return loss(rows);
    };
    return model;
  };
  auto options = options_for(2);
  options.in_flight = 2;
  auto trainer = make_trainer(waiting, options);
  Rows batch = kBatches[0];
  trainer.step(batch);
  batch.assign(16, 99);  // not rows of the data: the trainer has copied the batch
  returned.count_down();
  CHECK(trainer.take_times().compute > 0);
  CHECK(trainer.take_times().compute == 0);
  CHECK(trainer.take_sums().rows == 16);
}

TEST_CASE("model() waits for the steps in flight, so that what is then done to the module is between steps") {
  std::latch returned(1);
  const ModelFactory waiting = [&] {
    auto model = lenet_factory()();
    model.loss_sum = [&returned, loss = model.loss_sum](const Inputs& rows) {
      returned.wait();
      return loss(rows);
    };
    return model;
  };
  auto options = options_for(2);
  options.in_flight = 2;
  auto trainer = make_trainer(waiting, options);
  const auto param = trainer.model(1).module->parameters().front();
  const auto before = param.detach().clone();
  trainer.step(kBatches[0]);
  returned.count_down();
  trainer.model(1);
  CHECK_FALSE(param.equal(before));
}

TEST_CASE(
    "an error of a step in flight is thrown by a later call, and a trainer may be destroyed before its steps "
    "end") {
  leave_cores_to_replicas();  // otherwise torch would start a thread for this one and keep it
  const auto before = thread_count();
  {
    const ModelFactory failing = [] {
      auto model = lenet_factory()();
      model.loss_sum = [](const Inputs&) -> Outcome { throw Mishap("in flight"); };
      return model;
    };
    auto options = options_for(3);
    options.in_flight = 2;
    auto trainer = make_trainer(failing, options);
    trainer.step(kBatches[0]);
    CHECK_THROWS_WITH(trainer.step(kBatches[0]), ContainsSubstring("in flight"));
    auto unasked = make_trainer(failing, options);
    unasked.step(kBatches[0]);
    auto fine = make_trainer(lenet_factory(), options);
    fine.step(kBatches[0]);
  }
  CHECK(thread_count_down_to(before) == before);
}
