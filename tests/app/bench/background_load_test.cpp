// Trainings that keep other cores busy: they step when they are told to, and only then.
#include <lockstep/tests/catch.h>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <lockstep/app/bench/background_load.h>
#include <lockstep/app/report/timed_training.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;

namespace {

TrainPlan small_plan() {
  BenchTrainOptions options;
  options.train.data = "synthetic";
  options.train.limit_train = 64;
  options.train.batch_size = 8;
  return plan_on(options, {torch::Device(torch::kCPU)}, /*threads=*/1);
}

// Whether they take so many more, within a minute.
bool take(const Neighbours& neighbours, int64_t more) {
  const auto enough = neighbours.steps() + more;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (neighbours.steps() < enough && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return neighbours.steps() >= enough;
}

}  // namespace

TEST_CASE("neighbours step between run() and rest(), again and again, and leave no thread") {
  leave_cores_to_replicas();
  const auto plan = small_plan();
  const auto before = testing::thread_count();
  for (const int count : {0, 1, 3}) {
    Neighbours neighbours(plan, count);
    CHECK(neighbours.steps() == 0);
    for (int turn = 0; turn < 2; ++turn) {
      neighbours.run();
      if (count > 0) CHECK(take(neighbours, 5));
      neighbours.rest();
      const auto taken = neighbours.steps();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      CHECK(neighbours.steps() == taken);
    }
    neighbours.run();  // ends while they run
  }
  CHECK(testing::thread_count_down_to(before) <= before);  // fewer, where one was just ending
}

TEST_CASE("what a neighbour throws reaches who waits for it") {
  leave_cores_to_replicas();
  auto plan = small_plan();
  const auto before = testing::thread_count();
  plan.factory = []() -> Model { throw std::runtime_error("no such model"); };
  CHECK_THROWS_WITH(Neighbours(plan, 3), "no such model");
  CHECK(testing::thread_count_down_to(before) <= before);  // fewer, where one was just ending
}
