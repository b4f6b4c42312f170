// How a TrainRun makes checkpoints, and goes on from one.
#include <fmt/format.h>

#include <utility>

#include <lockstep/app/report/environment.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/fields.h>
#include <lockstep/app/train/run.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {

// All processes load; process 0 has the state, and tells the others how far it is.
void TrainRun::go_on_from(const RunState& state) {
  trainer_.load(state.trainer);
  progress_ = state.progress;
  if (plan_.world.connection) {
    const auto told = plan_.world.connection->gather(to_json(progress_).dump());
    progress_ = read_progress(nlohmann::ordered_json::parse(told.front()));
  }
  steps_done_ = resumed_steps_ = trainer_.steps_taken();
  schedule_.made(steps_done_, clock_());
}

// A collective. Leaves out the step whose loss was not finite, and with kRollback all steps since the
// checkpoint. Throws the error where the run stops for it.
void TrainRun::go_back(const LossError& error) {
  constexpr int kMostTimes = 10;  // a training that has diverged does so at every step
  if (options_.on_nan == OnNan::kStop) throw error;
  if (times_gone_back_ == kMostTimes) {
    throw LossError(fmt::format("{}, after the run had gone back {} times", error.what(), times_gone_back_),
                    error.hint(), error.step());
  }
  ++times_gone_back_;
  auto left_out = progress_.left_out;
  go_on_from(newest_state());
  const StepRange range{.first = options_.on_nan == OnNan::kSkip ? error.step() : steps_done_ + 1,
                        .last = error.step()};
  left_out.push_back(range);
  progress_.left_out = std::move(left_out);
  if (!plan_.world.leads()) return;
  const auto steps = range.first == range.last ? fmt::format("step {}", range.last)
                                               : fmt::format("steps {} to {}", range.first, range.last);
  warn(fmt::format("{}; the run goes back to its checkpoint of step {} and leaves out {} of the run",
                   error.what(), steps_done_, steps));
  output_.record(went_back_json(steps_done_, progress_.left_out, error.what()));
}

// Of the run's folder, whose metrics are cut to it. In other processes nothing: they get it by loading.
RunState TrainRun::newest_state() {
  if (!checkpoints_) return {};
  checkpoints_->finish();
  auto found = newest_checkpoint(checkpoints_->run(), warn);
  if (!found)
    throw WeightsError(fmt::format("no whole checkpoint is left in {}", checkpoints_->run().path().native()));
  checkpoints_->run().set_aside_after(found->state.trainer.steps);
  if (run_metrics_) run_metrics_->cut(found->state.file_bytes);
  return std::move(found->state);
}

void TrainRun::save_after_epoch(double test_accuracy) {
  if (!schedule_.on()) return;
  const auto all = agreement_.settle(own_news());
  if (complete() || schedule_.due(steps_done_, progress_, all.checkpoint_due)) save_checkpoint(test_accuracy);
}

void TrainRun::save_if_new() {
  if (schedule_.on() && steps_done_ > 0 && !schedule_.has(steps_done_)) save_checkpoint();
}

// A collective. Weights whose loss is not finite are never saved: take_sums() throws.
void TrainRun::save_checkpoint(std::optional<double> test_accuracy) {
  if (progress_.step > 0) take_sums(progress_.epoch);  // waits for the step
  const Stopwatch began;
  // The writer must have done with the checkpoint before, so that memory holds one at most.
  if (checkpoints_) output_.attempt([&] { checkpoints_->finish(); });
  RunState state{.trainer = trainer_.state(), .progress = progress_};
  const double now = clock_();
  schedule_.made(steps_done_, now);
  agreement_.checkpoint_made();
  if (!checkpoints_) return;
  if (progress_.step > 0) {
    state.progress.epoch_seconds = now - epoch_begin_;
    state.progress.lr = intervals_.epoch().lr;
    state.progress.epoch_sums = intervals_.epoch().sums;
    state.progress.recorded_sums = intervals_.recorded().sums;
  }
  state.plan = plan_fields(plan_);
  state.environment = environment_json();
  if (run_metrics_) state.file_bytes = run_metrics_->sizes();
  output_.attempt([&] { checkpoints_->save(std::move(state), test_accuracy, began); });
}

}  // namespace lockstep
