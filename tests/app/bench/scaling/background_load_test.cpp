// BackgroundLoad trains between run() and pause(), and only then.
#include <lockstep/tests/catch.h>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <lockstep/app/bench/scaling/background_load.h>
#include <lockstep/app/report/timed_training.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;

namespace {

TrainPlan small_plan() {
  BenchTrainOptions options;
  options.train.data.path = "synthetic";
  options.train.data.limit_train = 64;
  options.train.batch_size = 8;
  return plan_on(options, {torch::Device(torch::kCPU)}, /*threads=*/1);
}

// Returns true if the trainings take `more` further steps within a minute.
bool takes(const BackgroundLoad& background_load, int64_t more) {
  const auto enough = background_load.steps() + more;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (background_load.steps() < enough && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  return background_load.steps() >= enough;
}

}  // namespace

TEST_CASE("BackgroundLoad steps between run() and pause(), repeatedly, and leaves no thread") {
  leave_cores_to_replicas();
  const auto plan = small_plan();
  const auto before = testing::thread_count();
  for (const int count : {0, 1, 3}) {
    BackgroundLoad background_load(plan, count);
    CHECK(background_load.steps() == 0);
    for (int repetition = 0; repetition < 2; ++repetition) {
      background_load.run();
      if (count > 0) CHECK(takes(background_load, 5));
      background_load.pause();
      const auto taken = background_load.steps();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      CHECK(background_load.steps() == taken);
    }
    background_load.run();  // the destructor stops running trainings
  }
  CHECK(testing::thread_count_down_to(before) <= before);  // fewer if one was just ending
}

TEST_CASE("BackgroundLoad rethrows an error of a training") {
  leave_cores_to_replicas();
  auto plan = small_plan();
  const auto before = testing::thread_count();
  plan.factory = []() -> Model { throw std::runtime_error("no such model"); };
  CHECK_THROWS_WITH(BackgroundLoad(plan, 3), "no such model");
  CHECK(testing::thread_count_down_to(before) <= before);  // fewer if one was just ending
}
