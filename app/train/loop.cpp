#include <lockstep/app/train/loop.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lockstep/app/machine/environment.h>
#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/data/weights_hash.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/train_epochs.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

TrainerOptions trainer_options(const TrainPlan& plan, const TrainFlags& flags, Trace& trace) {
  auto options = plan.trainer;
  if (!plan.world.leads()) return options;
  if (flags.trace) options.replica.trace = &trace;
  options.replica.notice = [](const std::string& text) { warn(text); };
  return options;
}

std::optional<CheckpointInterval> checkpoint_interval(const TrainFlags& flags) {
  return flags.checkpoint_every ? std::optional(parse_interval(*flags.checkpoint_every)) : std::nullopt;
}

constexpr const char* kTest = "test";
constexpr const char* kValidation = "validation";

TestSets test_sets(const TrainingData& data) {
  std::vector<TestSet> sets{{kTest, data.test.sources}};
  if (data.validation) sets.push_back({kValidation, data.validation->sources});
  return TestSets(std::move(sets));
}

double scaled_to_epoch(double seconds, int64_t steps, const TrainPlan& plan) {
  return seconds * static_cast<double>(plan.steps_per_epoch) / static_cast<double>(steps);
}

}  // namespace

TrainLoop::TrainLoop(const TrainPlan& plan, const TrainFlags& flags, Recorder& record,
                     const std::optional<RunState>& resume)
    : plan_(plan),
      flags_(flags),
      record_(record),
      trainer_(plan.factory, plan.data.set.train.sources, test_sets(plan.data.set),
               trainer_options(plan, flags, trace_)),
      agreement_(plan.world.process_group.get()),
      schedule_(checkpoint_interval(flags)),
      going_back_(flags.on_nan) {
  schedule_.made(-1, record_.now());
  position_.epoch_sums = position_.recorded_sums = zero_sums(plan.metrics);
  if (!resume) return;
  restore(*resume);
  changed_ = changed_settings(resume->plan, plan_fields(plan_));
}

RunReport TrainLoop::run() {
  const bool was_finished = is_finished();
  record_.begin(position_, steps_done_, was_finished ? nlohmann::ordered_json() : changed_);
  stop_if_asked(agreement_.agree_now(own_news()), "before the first step");
  // There is one to go back to from the first step on. A resumed run has one.
  if (going_back_.is_wanted() && steps_done_ == 0) save();
  auto report = was_finished ? saved_report() : RunReport();
  for (bool whole = true; whole && !is_finished();) {
    try {
      whole = run_epoch(report);
    } catch (const LossError& error) {
      go_back(error);
    }
  }
  require_trained();
  report.steps = steps_done_;
  report.stopped_early = has_stopped_early();
  if (report.stopped_early && !was_finished) record_.stopped_early(position_);
  if (const auto scale = trainer_.loss_scale(); scale && scale->steps > 0) {
    report.updates_per_step = static_cast<double>(scale->updates) / static_cast<double>(scale->steps);
  }
  report.peak_bytes = peak_resident_bytes();
  if (flags_.print_weights_hash) {
    auto weights = this->weights();
    if (plan_.world.leads()) report.weights_sha256 = weights_sha256(std::move(weights));
  }
  record_.throw_if_failed();
  record_.finished(report);
  record_.throw_if_failed();
  return report;
}

// --on-nan may have left out every step, and fp16 may have skipped those that were taken.
void TrainLoop::require_trained() {
  if (steps_done_ > 0 && position_.leaves_out(StepRange{.first = 1, .last = steps_done_})) {
    throw NumericError(fmt::format("nothing was trained: --on-nan left out all steps, 1 to {}", steps_done_),
                       diverged_hint(plan_));
  }
  trainer_.require_updates();
}

// Accuracy and time are known of the devices and images with which the checkpoint's run has measured them.
RunReport TrainLoop::saved_report() const {
  const auto accuracy = position_.last_accuracy();
  return {.test_accuracy = accuracy,
          .seconds_per_epoch = scaled_to_epoch(position_.seconds, steps_done_, plan_),
          .was_finished = true,
          .measured = accuracy && same_test_settings(changed_) &&
                      (steps_done_ == plan_.total_steps || has_stopped_early())};
}

// Takes the steps of the epoch, as far as the run goes, and evaluates. Returns false if --limit-steps ends
// the run within it.
bool TrainLoop::run_epoch(RunReport& run) {
  const auto order = batch_order(plan_.trainer.seed, position_.epoch - 1, plan_.data.set.train.rows);
  const auto steps = std::min(plan_.steps_per_epoch, plan_.total_steps - steps_done_ + position_.step);
  intervals_.begin(record_.now(), position_);
  record_.begin_epoch(position_, steps_done_);
  // As train_epochs() does: a batch ahead. Steps that are left out need no rows.
  const auto tell = [&](int64_t step) {
    if (step >= steps || position_.leaves_out(steps_done_ + 1 + step - position_.step)) return;
    trainer_.will_need(batch_of(order, step, plan_.batch_size), position_.epoch - 1);
  };
  tell(position_.step);
  while (position_.step < steps) {
    tell(position_.step + 1);
    run_step(batch_of(order, position_.step, plan_.batch_size));
    position_.step += 1;
    after_step(/*last=*/position_.step == steps);
  }
  const auto report = evaluated_epoch();
  const double seconds = position_.seconds + report.seconds;
  run.test_accuracy = accuracy_of(report.test);
  if (run.test_accuracy) position_.accuracy.push_back(*run.test_accuracy);
  run.test_loss = report.test.mean_loss();
  run.train_loss = report.trained.sums.mean_loss();
  run.seconds_per_epoch = scaled_to_epoch(seconds, steps_done_, plan_);
  const double watched_loss = observe_validation(report);
  record_.epoch(report, position_.accuracy);
  if (position_.step < plan_.steps_per_epoch) return false;
  trainer_.observe_loss(watched_loss);  // before a checkpoint of this point
  begin_next_epoch(seconds, report.trained.lr);
  return true;
}

// Returns the loss that a schedule watches: with rows that are held out theirs, never that of the test rows.
double TrainLoop::observe_validation(const EpochReport& report) {
  if (!report.validation) return report.test.mean_loss();
  const double loss = report.validation->mean_loss();
  position_.validation.push_back(accuracy_of(*report.validation).value_or(-loss));
  return loss;
}

// seconds: of training so far. A checkpoint of this point belongs to the next epoch.
void TrainLoop::begin_next_epoch(double seconds, double lr) {
  const auto score = position_.last_score();
  position_ = {.epoch = position_.epoch + 1,
               .seconds = seconds,
               .lr = lr,
               .epoch_sums = zero_sums(plan_.metrics),
               .recorded_sums = zero_sums(plan_.metrics),
               .accuracy = std::move(position_.accuracy),
               .validation = std::move(position_.validation),
               .left_out = std::move(position_.left_out)};
  if (!schedule_.on()) return;
  const auto all = agreement_.agree_now(own_news());
  if (is_finished() || schedule_.due(steps_done_, position_, all.checkpoint_due)) save(score);
}

// Waits for the epoch's last step, and evaluates.
EpochReport TrainLoop::evaluated_epoch() {
  take_sums();
  record_.trained(intervals_.epoch(), steps_done_);
  // A run that goes on from the middle of an epoch evaluates it when it is whole.
  if (position_.step < plan_.steps_per_epoch) save_if_new();
  const double end = record_.now();
  take_times();
  EpochReport report{
      .epoch = position_.epoch, .trained = intervals_.epoch(), .seconds = intervals_.seconds_of_epoch(end)};
  if (plan_.data.set.validation) report.validation = evaluate(kValidation);
  report.test = evaluate(kTest);
  report.test_seconds = record_.now() - end;
  return report;
}

void TrainLoop::run_step(std::span<const int64_t> rows) {
  if (position_.leaves_out(steps_done_ + 1)) {
    trainer_.leave_out_step();
    ++steps_done_;
    return;
  }
  const double lr = trainer_.lr();
  const bool settled = trainer_.split_settled();
  try {
    trainer_.step(rows, position_.epoch - 1);
  } catch (const NumericError&) {  // no loss scale helps: after the same step in every process
    take_sums();  // a loss that was not finite is the cause, and --on-nan may go back from it
    throw;
  }
  ++steps_done_;
  if (!settled && trainer_.split_settled()) record_.split(steps_done_, trainer_.split());
  intervals_.add_step(static_cast<int64_t>(rows.size()), lr);
  if (steps_done_ == resumed_steps_ + 1) trainer_.synchronize();  // the first step is timed alone
}

// last: of the epoch, or of the run.
void TrainLoop::after_step(bool last) {
  const bool recorded = position_.step % flags_.log_every == 0 || steps_done_ == plan_.total_steps;
  auto news = own_news();
  news.line_due = !recorded && record_.is_line_due();
  const auto all = last ? agreement_.agree_now(news) : agreement_.after_step(news);
  if (recorded || all.line_due) {
    take_sums();  // waits for the step
    take_times();
    record_.step(intervals_, position_, steps_done_, recorded);
    agreement_.line_printed();
  }
  if (steps_done_ == resumed_steps_ + 1) {
    if (!recorded) trainer_.take_times();
    intervals_.leave_out_first_step(record_.now(), recorded);
  }
  if (const auto now = agreement_.single_process() ? own_news() : all; now.signal || now.output_failed) {
    take_sums();  // throws if the loss is not finite: such weights are not kept
    stop_if_asked(now, fmt::format("after step {} of epoch {}", position_.step, position_.epoch));
  }
  if (!last && schedule_.due(steps_done_, position_, all.checkpoint_due)) save_if_new();
}

// Alone, a process stops after the current block. Several note a signal, and agree on it after the
// evaluation.
RowSums TrainLoop::evaluate(const char* test_set) {
  const auto where = fmt::format("during the evaluation after epoch {}", position_.epoch);
  auto test = trainer_.evaluate(test_set, [&](int64_t rows_done, int64_t rows) {
    record_.evaluation(rows_done, rows);
    if (agreement_.single_process()) stop_if_asked(own_news(), where);
  });
  if (!std::isfinite(test.loss)) {  // no step has used the weights after the last step
    throw LossError(fmt::format("the {} loss after epoch {} was not finite", test_set, position_.epoch),
                    diverged_hint(plan_, /*in_evaluation=*/true), steps_done_);
  }
  if (!agreement_.single_process()) stop_if_asked(agreement_.agree_now(own_news()), where);
  return test;
}

void TrainLoop::take_sums() {
  const auto sums = trainer_.take_sums();
  trace_.resolve();  // all GPU work is done by now
  if (sums.bad) {
    const auto step_of_epoch = sums.bad->step - (position_.epoch - 1) * plan_.steps_per_epoch + 1;
    throw LossError(
        fmt::format("the loss was not finite at epoch {}, step {}, on replica {} ({})", position_.epoch,
                    step_of_epoch, sums.bad->rank, plan_.replica_device(sums.bad->rank)),
        diverged_hint(plan_), sums.bad->step + 1);
  }
  intervals_.add_sums(sums);
  if (const auto scale = trainer_.loss_scale()) intervals_.add_skipped(sums.skipped, scale->scale);
}

// On a GPU a call returns before its work is done, so that the host cannot tell the phases apart.
void TrainLoop::take_times() {
  const auto times = trainer_.take_times();
  if (!any_gpu(plan_.trainer.devices)) intervals_.add_times(times);
}

// It begins with the first update.
bool TrainLoop::has_average() {
  const auto scale = trainer_.loss_scale();
  return plan_.trainer.ema > 0 && (!scale || scale->updates > 0);
}

StepNews TrainLoop::own_news() const {
  return {.signal = InterruptGuard::signal(),
          .output_failed = record_.has_failed(),
          .checkpoint_due = plan_.world.leads() && schedule_.due_by_clock(record_.now())};
}

void TrainLoop::stop_if_asked(const StepNews& all, const std::string& where) const {
  if (all.output_failed) {
    record_.throw_if_failed();
    throw OutputError(fmt::format("stopped {}, since process 0 cannot write its output", where));
  }
  if (all.signal) throw InterruptedError(*all.signal, where);
}

}  // namespace lockstep
