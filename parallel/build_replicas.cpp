#include <lockstep/parallel/build_replicas.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <mutex>

#include <lockstep/parallel/replicas/draws_in_turn.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

thread_local int turns_held = 0;

}  // namespace

DrawsInTurn::DrawsInTurn() { ++turns_held; }

DrawsInTurn::~DrawsInTurn() { --turns_held; }

bool DrawsInTurn::has_turn() { return turns_held > 0; }

// One caller of the process at a time: setting the generator's state back would change the numbers that
// another one's models draw.
void with_same_draws(int count, const std::function<void()>& build) {
  if (count < 0) {
    throw UsageError(fmt::format("{} replicas cannot be built", count), "give the number of replicas");
  }
  if (count == 0) return;
  static std::recursive_mutex one_at_a_time;  // a model may be built of replicas
  std::unique_lock alone(one_at_a_time, std::defer_lock);
  if (!DrawsInTurn::has_turn()) alone.lock();
  const auto before = generator_state(torch::kCPU);
  build();
  const auto after = generator_state(torch::kCPU);
  for (int built = 1; built < count; ++built) {
    set_generator_state(torch::kCPU, before);
    build();
  }
  set_generator_state(torch::kCPU, after);
}

}  // namespace lockstep
