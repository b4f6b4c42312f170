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

namespace {

// Two replicas with two steps in flight, which compute when the latch is open.
Trainer waiting_trainer(std::latch& open) {
  auto options = options_for(2);
  options.in_flight = 2;
  return make_trainer(lenet_with([&open](const Batch& rows, const Loss& loss, int) {
                        open.wait();
                        return loss(rows);
                      }),
                      options);
}

}  // namespace

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
      losses.push_back(trainer.evaluate().loss);
    }
    CHECK(trainer.steps_taken() == 15);
    trainer.step(kBatches[0]);
    return std::pair(losses, trainer.weights());  // waits for that step
  };
  const auto [losses, weights] = trained(1);
  const auto [two_losses, two_weights] = trained(2);
  CHECK(losses == two_losses);
  check_same_tensors(two_weights, weights);
}

TEST_CASE("with two steps in flight step() returns while the replicas compute") {
  std::latch returned(1);  // no replica computes before step() has returned
  auto trainer = waiting_trainer(returned);
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
  auto trainer = waiting_trainer(returned);
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
    const auto failing =
        lenet_with([](const Batch&, const Loss&, int) -> Outcome { throw Mishap("in flight"); });
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
