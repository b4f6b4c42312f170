// The functions of TrainLoop that save its state, and go on from one.
#include <fmt/format.h>

#include <utility>

#include <lockstep/app/train/loop.h>
#include <lockstep/parallel/collectives/agree.h>

namespace lockstep {

// All processes load; process 0 has the state, and tells the others how far it is.
void TrainLoop::restore(const RunState& state) {
  auto own = state.trainer;                         // a copy shares the tensors
  if (plan_.trainer.ema == 0) own.average.clear();  // that of a run which --resume-anyway ends
  trainer_.load(own);
  position_ = state.position;
  if (const auto& group = plan_.world.process_group) {
    position_ = read_position(gather_values(group.get(), "progress", to_json(position_)).front());
  }
  for (auto* sums : {&position_.epoch_sums, &position_.recorded_sums}) *sums = declared(*sums, plan_.metrics);
  steps_done_ = resumed_steps_ = trainer_.steps_taken();
  schedule_.made(steps_done_, record_.now());
}

// A collective. Throws the error where the run stops for it.
void TrainLoop::go_back(const LossError& error) {
  going_back_.count(error);
  auto left_out = std::move(position_.left_out);
  restore(record_.newest_state());
  position_.left_out = std::move(left_out);
  const auto range = going_back_.leave_out(position_, steps_done_, error.step());
  record_.went_back(steps_done_, position_.left_out, range, error.message());
  if (range) return;
  throw LossError(
      fmt::format("{}, with the weights of the checkpoint of step {}", error.message(), steps_done_),
      "go on from an older checkpoint: --resume CHECKPOINT --output DIR", error.step());
}

void TrainLoop::save_if_new() {
  if (schedule_.on() && steps_done_ > 0 && !schedule_.has(steps_done_)) save();
}

// A collective. Weights with a loss that is not finite, or that are not finite themselves, are never saved.
void TrainLoop::save(std::optional<double> score) {
  const bool within_epoch = position_.step > 0;
  if (within_epoch) take_sums();  // waits for the step
  const auto state = [&](const TensorAllocator& memory) {
    RunState own{.trainer = trainer_.state(memory), .position = position_};
    require_finite(own.trainer);
    const double now = record_.now();
    schedule_.made(steps_done_, now);
    agreement_.checkpoint_made();
    if (within_epoch) intervals_.add_to(own.position, now);
    return own;
  };
  record_.checkpoint(state, score);
}

// A collective: process 0 has the weights. The losses do not show what the last step's update has made.
void TrainLoop::require_finite(const TrainState& state) const {
  const auto told = gather_values(plan_.world.process_group.get(), "finite weights", is_finite(state));
  if (told.front().get<bool>()) return;
  throw LossError(fmt::format("the weights after step {} of the run are not finite", steps_done_),
                  diverged_hint(plan_), steps_done_);
}

}  // namespace lockstep
