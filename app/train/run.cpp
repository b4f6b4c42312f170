#include <lockstep/app/train/run.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lockstep/app/machine/environment.h>
#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/app/train/progress/evaluation_notice.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/data/weights_hash.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

// On a GPU a call returns before its work is done, so that the host cannot time the phases.
bool phases_known(const TrainPlan& plan) { return !any_gpu(plan.trainer.devices); }

}  // namespace

TrainRun::TrainRun(const TrainPlan& plan, const TrainFlags& options, const Terminal& terminal,
                   const RunOutputs& outputs, const RunState* resume, SecondsClock clock)
    : plan_(plan),
      options_(options),
      terminal_(terminal),
      run_metrics_(outputs.run_metrics),
      checkpoints_(outputs.checkpoints),
      live_(outputs.live),
      step_lines_wanted_(!options.quiet && !outputs.live && options.progress != ProgressDisplay::kNone),
      output_(options.quiet, step_lines_wanted_, outputs),
      trainer_(plan.factory, resident_sources(plan.data.set.train), resident_sources(plan.data.set.test),
               trainer_options()),
      agreement_(plan.world.process_group.get()),
      clock_(std::move(clock)),
      schedule_(outputs.every) {
  schedule_.made(-1, clock_());
  if (!resume) return;
  restore(*resume);
  changed_ = changed_settings(resume->plan, plan_fields(plan_));
}

TrainerOptions TrainRun::trainer_options() {
  auto options = plan_.trainer;
  if (!plan_.world.leads()) return options;
  if (options_.trace) options.replica.trace = &trace_;
  options.replica.notice = [](const std::string& text) { warn(text); };
  return options;
}

RunReport TrainRun::run() {
  stop_if_asked(agreement_.settle(own_news()), "before the first step");
  const bool changes = !complete() && !changed_.empty();
  output_.record_plan(plan_json(plan_),
                      changes ? resumed_json(steps_done_, changed_) : nlohmann::ordered_json());
  RunReport report;
  try {
    report = complete() ? finished_report() : run_epochs();
  } catch (const InterruptedError& error) {
    save_stopped();
    record_failure("stopped", error.message());
    if (!step_lines_wanted_) print_curve();
    throw;
  } catch (const NumericError& error) {
    record_failure("diverged", error.message());
    throw;
  } catch (const std::exception& error) {
    record_failure("failed", words_of(error));
    throw;
  }
  output_.throw_if_failed();
  return report;
}

void TrainRun::record_failure(std::string_view status, std::string_view reason) {
  if (live_) live_->erase();
  output_.record(failed_json(status, reason, steps_done_));
}

RunReport TrainRun::run_epochs() {
  stop_if_asked(agreement_.settle(own_news()), "before the first step");
  // There is one to go back to from the first step on. A resumed run has one.
  if (options_.on_nan != OnNan::kStop && steps_done_ == 0) save_checkpoint();
  RunReport run;
  bool whole = true;
  while (whole && !complete()) {
    try {
      whole = run_and_evaluate_epoch(run);
    } catch (const LossError& error) {
      go_back(error);
    }
  }
  if (live_) live_->erase();
  if (!step_lines_wanted_) print_curve();  // once
  run.steps = steps_done_;
  run.peak_bytes = peak_resident_bytes();
  add_weights_hash(run);
  output_.record(done_json(run));
  return run;
}

void TrainRun::add_weights_hash(RunReport& report) {
  if (!options_.print_weights_hash) return;
  auto weights = trainer_.weights();
  if (plan_.world.leads()) report.weights_sha256 = weights_sha256(std::move(weights));
}

// Returns false if --limit-steps ends the run within the epoch.
bool TrainRun::run_and_evaluate_epoch(RunReport& run) {
  const auto report = run_epoch(progress_.epoch);
  const double seconds = progress_.seconds + report.seconds;
  progress_.accuracy.push_back(report.test.accuracy());
  run.test_accuracy = report.test.accuracy();
  run.test_loss = report.test.loss();
  run.train_loss = mean_loss(report.sums);
  run.seconds_per_epoch =
      seconds * static_cast<double>(plan_.steps_per_epoch) / static_cast<double>(steps_done_);
  output_.print(epoch_lines(report, plan_));
  output_.record(epoch_json(report));
  if (step_lines_wanted_) print_curve();
  if (progress_.step < plan_.steps_per_epoch) return false;
  progress_.epoch += 1;
  progress_.step = 0;
  progress_.epoch_seconds = 0;
  progress_.seconds = seconds;
  progress_.lr = report.lr;
  progress_.epoch_sums = progress_.recorded_sums = {};
  save_after_epoch(report.test.accuracy());
  return true;
}

EpochReport TrainRun::run_epoch(int64_t epoch) {
  const auto order = batch_order(plan_.trainer.seed, epoch - 1, plan_.data.set.train.size());
  const auto steps = std::min(plan_.steps_per_epoch, plan_.total_steps - steps_done_ + progress_.step);
  const auto batch_size = static_cast<size_t>(plan_.batch_size);
  begin_intervals();
  step_lines_.start(clock_());
  if (live_) live_->begin(epoch, steps_done_, progress_.accuracy);
  for (int64_t step = progress_.step + 1; step <= steps; ++step) {
    const auto first = static_cast<size_t>(step - 1) * batch_size;
    run_step(std::span(order).subspan(first, std::min(batch_size, order.size() - first)));
    progress_.step = step;
    const bool recorded = step % options_.log_every == 0 || steps_done_ == plan_.total_steps;
    auto news = own_news();
    news.line_due = !recorded && line_due();
    const auto all = step == steps ? agreement_.settle(news) : agreement_.after_step(news);
    if (recorded || all.line_due) report_steps(epoch, step, recorded);
    if (steps_done_ == resumed_steps_ + 1) leave_out_first_step(recorded);
    stop_after_step(agreement_.single_process() ? own_news() : all, epoch, step);
    if (step < steps && schedule_.due(steps_done_, progress_, all.checkpoint_due)) save_if_new();
  }
  take_sums(epoch);  // waits for the last step
  if (live_) live_->trained(intervals_.epoch(), steps_done_);
  // A run that goes on from the middle of an epoch evaluates it when it is whole.
  if (steps < plan_.steps_per_epoch) save_if_new();
  const double end = clock_();
  intervals_.add_times(trainer_.take_times());
  const auto& sums = intervals_.epoch();
  EpochReport report{.epoch = epoch, .sums = sums.sums, .lr = sums.lr, .seconds = end - epoch_begin_};
  if (phases_known(plan_)) report.phases = mean_phases(sums);
  evaluate(report);
  report.test_seconds = clock_() - end;
  if (live_) live_->evaluated(report.test_seconds);
  return report;
}

// Alone, a process stops after the current block. Several note a signal, and agree on it after the
// evaluation.
void TrainRun::evaluate(EpochReport& report) {
  const auto where = fmt::format("during the evaluation after epoch {}", report.epoch);
  EvaluationNotice notice(clock_);
  report.test = trainer_.evaluate([&](int64_t rows_done, int64_t rows) {
    if (live_) live_->evaluation(rows_done, rows);
    if (step_lines_wanted_) notice(rows_done, rows);
    if (agreement_.single_process()) stop_if_asked(own_news(), where);
  });
  if (!std::isfinite(report.test.loss_sum)) {  // no step has used the weights after the last step
    throw LossError(fmt::format("the test loss after epoch {} was not finite", report.epoch),
                    diverged_hint(plan_), steps_done_);
  }
  if (!agreement_.single_process()) stop_if_asked(agreement_.settle(own_news()), where);
}

// Reading the clock costs nothing. A line, or a drawing, waits for the step.
bool TrainRun::line_due() {
  if (output_.takes_step_lines() && step_lines_.due(clock_())) step_line_due_ = true;
  return step_line_due_ || (live_ && live_->due());
}

void TrainRun::run_step(std::span<const int64_t> rows) {
  if (progress_.leaves_out(steps_done_ + 1)) {
    trainer_.leave_out_step();
    ++steps_done_;
    return;
  }
  const double lr = trainer_.lr();
  const bool settled = trainer_.split_settled();
  trainer_.step(rows);
  if (!settled && trainer_.split_settled()) report_split();
  intervals_.add_step(static_cast<int64_t>(rows.size()), lr);
  ++steps_done_;
  if (steps_done_ == resumed_steps_ + 1) trainer_.synchronize();  // the first step is timed alone
}

void TrainRun::begin_intervals() {
  intervals_.begin(clock_(), progress_);
  epoch_begin_ = intervals_.epoch().begin - progress_.epoch_seconds;
}

void TrainRun::leave_out_first_step(bool recorded) {
  if (!recorded) trainer_.take_times();
  intervals_.leave_out_first_step(clock_(), recorded);
}

// Shows the steps done and, if `recorded`, adds a line to the metrics. Each has the means of its own
// interval, and is missing if all steps of that were left out.
void TrainRun::report_steps(int64_t epoch, int64_t step, bool recorded) {
  take_sums(epoch);  // waits for the step
  intervals_.add_times(trainer_.take_times());
  const double now = clock_();
  const auto complete = [&](StepReport report) {
    report.epoch = epoch;
    report.step = step;
    if (!phases_known(plan_)) report.phases.reset();
    return report;
  };
  if (live_) live_->steps(intervals_.epoch(), steps_done_);
  agreement_.line_printed();
  if (std::exchange(step_line_due_, false) || recorded) {
    const auto printed = complete(intervals_.take_printed(now));
    if (printed.sums.rows > 0) output_.print_step(step_line(printed, plan_));
    step_lines_.shown(now);
  }
  if (!recorded) return;
  if (const auto report = complete(intervals_.take_recorded(now)); report.sums.rows > 0) {
    output_.record(step_json(report));
  }
}

void TrainRun::take_sums(int64_t epoch) {
  const auto sums = trainer_.take_sums();
  trace_.resolve();  // all GPU work is done by now
  if (sums.bad) {
    const auto step_of_epoch = sums.bad->step - (epoch - 1) * plan_.steps_per_epoch + 1;
    throw LossError(fmt::format("the loss was not finite at epoch {}, step {}, on replica {} ({})", epoch,
                                step_of_epoch, sums.bad->rank, plan_.replica_device(sums.bad->rank)),
                    diverged_hint(plan_), sums.bad->step + 1);
  }
  intervals_.add_sums(sums);
}

void TrainRun::report_split() {
  std::vector<std::string> shares;
  for (const double share : trainer_.split()) shares.push_back(fmt::format("{:.3f}", share));
  const auto sizes = shard_sizes(plan_.batch_size, plan_.world_size(), trainer_.split());
  output_.print(fmt::format("split settled after step {}: {} of a batch ({} images)", steps_done_ + 1,
                            fmt::join(shares, " : "), fmt::join(sizes, " : ")));
  output_.record(split_json(steps_done_ + 1, trainer_.split()));
}

StepNews TrainRun::own_news() const {
  return {.signal = interrupt_.signal(),
          .output_failed = output_.failed(),
          .checkpoint_due = checkpoints_ && schedule_.due_by_clock(clock_())};
}

void TrainRun::stop_after_step(const StepNews& all, int64_t epoch, int64_t step) {
  if (!all.signal && !all.output_failed) return;
  take_sums(epoch);  // throws if the loss is not finite: such weights are not kept
  stop_if_asked(all, fmt::format("after step {} of epoch {}", step, epoch));
}

void TrainRun::stop_if_asked(const StepNews& all, const std::string& where) const {
  if (all.output_failed) {
    output_.throw_if_failed();
    throw OutputError(fmt::format("stopped {}, since process 0 cannot write its output", where));
  }
  if (all.signal) throw InterruptedError(*all.signal, where);
}

void TrainRun::print_curve() {
  if (options_.quiet || !terminal_.interactive()) return;
  const auto curve = curve_text(progress_.accuracy, plan_.epochs, terminal_.width(), utf8_locale());
  output_.attempt([&] { write_stdout(curve); });
}

}  // namespace lockstep
