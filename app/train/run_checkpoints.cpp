// How a TrainRun makes checkpoints, and goes on from one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/app/train/config/config_text.h>
#include <lockstep/app/train/run.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {

// All processes load; process 0 has the state, and tells the others how far it is.
void TrainRun::restore(const RunState& state) {
  trainer_.load(state.trainer);
  progress_ = state.progress;
  if (const auto& group = plan_.world.process_group) {
    progress_ = read_progress(gather_values(group.get(), "progress", to_json(progress_)).front());
  }
  steps_done_ = resumed_steps_ = trainer_.steps_taken();
  schedule_.made(steps_done_, clock_());
  begin_intervals();
}

// Accuracy and time are known of the devices and images with which the checkpoint's run has measured them.
RunReport TrainRun::finished_report() {
  RunReport report{.steps = steps_done_,
                   .peak_bytes = peak_resident_bytes(),
                   .measured = same_test_settings(changed_) && steps_done_ == plan_.total_steps};
  if (!progress_.accuracy.empty()) report.test_accuracy = progress_.accuracy.back();
  report.seconds_per_epoch =
      progress_.seconds * static_cast<double>(plan_.steps_per_epoch) / static_cast<double>(steps_done_);
  add_weights_hash(report);
  output_.record_end(done_json(report));
  return report;
}

// A collective. Leaves out the step whose loss was not finite, and with kRollback all steps since the
// checkpoint. Throws the error where the run stops for it.
void TrainRun::go_back(const LossError& error) {
  constexpr int kMostTimes = 10;  // a training that has diverged does so at every step
  if (options_.on_nan == OnNan::kStop) throw error;
  if (times_gone_back_ == kMostTimes) {
    throw LossError(
        fmt::format("{}, after the run had gone back {} times", error.message(), times_gone_back_),
        error.hint(), error.step());
  }
  ++times_gone_back_;
  auto left_out = progress_.left_out;
  restore(newest_state());
  progress_.left_out = std::move(left_out);
  const auto range = steps_to_leave_out(error.step());
  const bool in_vain = error.step() <= steps_done_ || progress_.leaves_out(range);
  if (!in_vain) progress_.left_out.push_back(range);
  if (plan_.world.leads()) {
    output_.record(went_back_json(steps_done_, progress_.left_out, error.message()));
  }
  if (in_vain) {
    throw LossError(
        fmt::format("{}, with the weights of the checkpoint of step {}", error.message(), steps_done_),
        "go on from an older checkpoint: --resume CHECKPOINT --output DIR", error.step());
  }
  if (!plan_.world.leads()) return;
  const auto steps = range.first == range.last ? fmt::format("step {}", range.last)
                                               : fmt::format("steps {} to {}", range.first, range.last);
  warn(fmt::format("{}; the run goes back to its checkpoint of step {} and leaves out {} of the run",
                   error.message(), steps_done_, steps));
}

// With kSkip the bad step. If it, or those before it, are left out already, the step before them has made the
// weights bad: it goes, too.
StepRange TrainRun::steps_to_leave_out(int64_t bad) const {
  const auto earliest = steps_done_ + 1;
  if (options_.on_nan == OnNan::kRollback) return {.first = earliest, .last = bad};
  auto first = bad;
  while (first > earliest && progress_.leaves_out(first - 1)) --first;
  const bool made_before = first < bad || progress_.leaves_out(bad);
  if (made_before && first > earliest) --first;
  return {.first = first, .last = bad};
}

// A collective, also for errors. In other processes than the first the state is empty: they get it by
// loading.
RunState TrainRun::newest_state() {
  RunState state;
  try {
    together(plan_.world, [&] {
      if (checkpoints_) state = take_newest();
      return nlohmann::ordered_json();
    });
  } catch (const OutputError& error) {  // not one after which all processes keep the weights
    throw Error(error.exit_code(), error.message(), error.hint());
  }
  return state;
}

// Returns the newest state of the run's folder, whose metrics are cut to it.
RunState TrainRun::take_newest() {
  checkpoints_->finish();
  const auto& run = checkpoints_->run();
  auto found = newest_checkpoint(run, warn);
  if (!found) throw WeightsError(fmt::format("no whole checkpoint is left in '{}'", run.path().native()));
  run.set_aside_after(found->state.trainer.steps);
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

// Saves what a run that was stopped keeps. Weights that are not finite end it like a loss that is not.
void TrainRun::save_stopped() {
  try {
    save_if_new();
  } catch (const LossError& error) {
    record_failure("diverged", error.message());
    throw;
  }
}

// A collective: process 0 has the weights. The losses do not show what the last step's update has made.
void TrainRun::require_finite(const TrainState& state) {
  const auto finite = [](const NamedTensor& named) {
    return !named.tensor.is_floating_point() || torch::isfinite(named.tensor).all().item<bool>();
  };
  bool good = std::all_of(state.model.begin(), state.model.end(), finite) &&
              std::all_of(state.optimizer.begin(), state.optimizer.end(), finite);
  if (gather_values(plan_.world.process_group.get(), "finite weights", good).front().get<bool>()) return;
  throw LossError(fmt::format("the weights after step {} of the run are not finite", steps_done_),
                  diverged_hint(plan_), steps_done_);
}

// A collective. Weights with a loss that is not finite, or that are not finite themselves, are never saved.
void TrainRun::save_checkpoint(std::optional<double> test_accuracy) {
  if (progress_.step > 0) take_sums(progress_.epoch);  // waits for the step
  const Stopwatch began;
  // The writer must have done with the checkpoint before, so that memory holds one at most.
  if (checkpoints_) output_.attempt([&] { checkpoints_->finish(); });
  RunState state{.trainer = trainer_.state(), .progress = progress_};
  require_finite(state.trainer);
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
  state.config = config_text(options_, plan_, kInConfig | kKept);
  if (run_metrics_) state.file_bytes = run_metrics_->sizes();
  output_.attempt([&] { checkpoints_->save(std::move(state), test_accuracy, began); });
}

}  // namespace lockstep
