#include <lockstep/app/train/recorder.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/checkpoint_memory.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/progress/progress_display.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

// The same in the log, where lines stay whole.
std::string plan_text(const TrainPlan& plan, size_t width) {
  return fmt::format("{}\n{}\n", version_text(), describe(plan, width));
}

std::string nothing_left_text(const RunReport& report, const TrainPlan& plan) {
  const auto steps = counted(plan.total_steps, "step");
  if (report.stopped_early) {
    return fmt::format("this run has ended after {}, by --patience: there is nothing left to do\n",
                       counted(report.steps, "step"));
  }
  const auto text = report.steps > plan.total_steps
                        ? fmt::format("this run ends after {}, the checkpoint has {}", steps, report.steps)
                        : fmt::format("all {} of this run are done", steps);
  return fmt::format("{}: there is nothing left to do{}\n", text,
                     report.measured ? "" : " (lockstep eval RUN tests its weights)");
}

std::string peak_memory_text(const RunReport& report, const TrainPlan& plan) {
  return fmt::format("peak memory{}: {} resident ({} estimated)\n",
                     plan.world.single_process() ? "" : " of process 0", memory_text(report.peak_bytes),
                     memory_text(plan.memory_estimate));
}

}  // namespace

Recorder::Recorder(const TrainPlan& plan, const TrainFlags& flags, ColorMode color, RunOutputs& outputs,
                   SecondsClock clock)
    : plan_(plan),
      flags_(flags),
      to_(outputs),
      terminal_(STDOUT_FILENO, color),
      color_(color),
      clock_(std::move(clock)) {}

void Recorder::plan() const {
  if (!plan_.world.leads()) return;
  if (to_.kept.log) to_.kept.log->write(plan_text(plan_, std::string::npos));
  if (flags_.dry_run && (flags_.json || metrics_on_stdout(flags_))) {
    write_stdout(json_line(plan_json(plan_)));
  } else if (!flags_.quiet) {
    write_stdout(plan_text(plan_, terminal_.text_width()));
  }
  for (const auto& notice : task_notices(plan_)) warn(notice);
  for (const auto& notice : machine_notices(plan_)) warn(notice);
  for (const auto& notice : batch_notices(plan_)) warn(notice);
  if (const auto notice = shard_notice(plan_)) warn(*notice);
  if (const auto notice = rate_notice(plan_)) warn(*notice);
}

// The metrics of a run folder that goes on have a plan.
void Recorder::begin(const RunPosition& position, int64_t steps_done, const nlohmann::ordered_json& changed) {
  live_ = live_display(plan_, flags_, color_, clock_);
  accuracy_ = position.accuracy;
  const auto& metrics = to_.kept.metrics;
  const bool goes_on = metrics && !metrics->empty();
  event(plan_json(plan_), /*in_folder=*/!goes_on);
  if (goes_on && !changed.empty()) attempt([&] { metrics->append(resumed_json(steps_done, changed)); });
}

void Recorder::begin_epoch(const RunPosition& position, int64_t steps_done) {
  accuracy_ = position.accuracy;
  step_lines_.start(clock_());
  if (live_) live_->begin(position.epoch, steps_done, position.accuracy);
}

// Reading the clock costs nothing.
bool Recorder::is_line_due() {
  if ((wants_step_lines() || to_.kept.log) && step_lines_.due(clock_())) step_line_due_ = true;
  return step_line_due_ || (live_ && live_->due());
}

void Recorder::step(StepIntervals& intervals, const RunPosition& position, int64_t steps_done,
                    bool recorded) {
  const double now = clock_();
  if (live_) live_->steps(intervals.epoch(), steps_done);
  if (std::exchange(step_line_due_, false) || recorded) {
    const auto printed = intervals.take_printed(now);
    if (printed.sums.rows > 0) print(step_line(printed, position, plan_), wants_step_lines());
    step_lines_.shown(now);
  }
  if (!recorded) return;
  if (const auto steps = intervals.take_recorded(now); steps.sums.rows > 0) event(step_json(steps, position));
}

void Recorder::split(int64_t steps_done, const std::vector<double>& shares) {
  std::vector<std::string> texts;
  for (const double share : shares) texts.push_back(fmt::format("{:.3f}", share));
  const auto sizes = shard_sizes(plan_.batch_size, plan_.world_size(), shares);
  print(fmt::format("split settled after step {}: {} of a batch ({} {}s)", steps_done,
                    fmt::join(texts, " : "), fmt::join(sizes, " : "), plan_.data.set.row_noun),
        !flags_.quiet);
  event(split_json(steps_done, shares));
}

void Recorder::trained(const StepInterval& epoch, int64_t steps_done) {
  if (live_) live_->trained(epoch, steps_done);
  notice_.emplace(plan_.data.set.row_noun, clock_);
}

void Recorder::evaluation(int64_t rows_done, int64_t rows) {
  if (live_) live_->evaluation(rows_done, rows);
  if (wants_step_lines()) (*notice_)(rows_done, rows);
}

void Recorder::epoch(const EpochReport& report, std::span<const double> accuracy) {
  accuracy_.assign(accuracy.begin(), accuracy.end());
  if (live_) live_->evaluated(report.test_seconds);
  print(epoch_lines(report, plan_), !flags_.quiet);
  event(epoch_json(report));
  if (wants_step_lines()) print_curve();
}

void Recorder::checkpoint(const std::function<RunState(const TensorAllocator&)>& state,
                          std::optional<double> score) {
  const Stopwatch began;
  const auto& writer = to_.kept.checkpoints;
  if (writer) attempt([&] { writer->finish(); });
  auto own =
      state(writer ? checkpoint_memory(writer->run().checkpoints(), checkpoint_bytes(plan_)) : heap_memory());
  if (!writer) return;
  own.plan = plan_fields(plan_);
  own.environment = environment_json();
  attempt([&] { to_.kept.save(std::move(own), plan_, flags_, score, began); });
}

RunState Recorder::newest_state() { return to_.kept.newest_state(plan_.world); }

void Recorder::stopped_early(const RunPosition& position) {
  const auto since = position.epochs_since_best();
  const auto last = static_cast<int64_t>(position.validation.size());
  print(fmt::format("stopped after epoch {}: the validation has not become better for {}, since epoch {}",
                    last, counted(since, "epoch"), last - since),
        !flags_.quiet);
}

void Recorder::went_back(int64_t steps_done, const std::vector<StepRange>& left_out,
                         const std::optional<StepRange>& range, std::string_view reason) {
  if (!plan_.world.leads()) return;
  event(went_back_json(steps_done, left_out, reason));
  if (!range) return;
  const auto steps = range->first == range->last ? fmt::format("step {}", range->last)
                                                 : fmt::format("steps {} to {}", range->first, range->last);
  warn(fmt::format("{}; the run goes back to its checkpoint of step {} and leaves out {} of the run", reason,
                   steps_done, steps));
}

void Recorder::finished(const RunReport& report) {
  if (live_) live_->erase();
  if (!report.was_finished && !wants_step_lines()) print_curve();  // once
  event(done_json(report), /*in_folder=*/!to_.kept.metrics_finished);
  has_ended_ = true;
}

void Recorder::failed(std::string_view status, std::string_view reason, int64_t steps_done) {
  if (live_) live_->erase();
  // One end alone: the run's, also if its line could not be written everywhere, and that of a finished run.
  if (!has_ended_) event(failed_json(status, reason, steps_done), /*in_folder=*/!to_.kept.metrics_finished);
  if (status == kStopped && !wants_step_lines()) print_curve();
}

// Hash and closing line are not printed where the metrics' last line has them.
void Recorder::result(const RunReport& report) const {
  if (!plan_.world.leads()) return;
  const auto say = [&](bool quiet, const std::string& text) {
    print_and_log(to_.kept.log.get(), quiet, text);
  };
  const bool on_stdout = metrics_on_stdout(flags_);
  if (report.was_finished) {
    // Without a closing line it is the last line, which a quiet run prints.
    say(report.measured ? flags_.quiet : on_stdout, nothing_left_text(report, plan_));
  } else {
    if (report.steps % plan_.steps_per_epoch != 0) {
      say(flags_.quiet,
          fmt::format("stopped after {} (--limit-steps); sec/epoch is scaled to an epoch of {}\n",
                      counted(report.steps, "step"), counted(plan_.steps_per_epoch, "step")));
    }
    say(flags_.quiet, peak_memory_text(report, plan_));
  }
  if (report.weights_sha256) say(on_stdout, fmt::format("weights sha256: {}\n", *report.weights_sha256));
  if (report.measured) say(on_stdout, closing_line(report, plan_) + "\n");
}

void Recorder::throw_if_failed() const {
  if (first_error_) std::rethrow_exception(first_error_);
}

bool Recorder::wants_step_lines() const {
  return !flags_.quiet && !live_ && flags_.progress != ProgressDisplay::kNone;
}

// The log gets all lines.
void Recorder::print(const std::string& line, bool shown) {
  if (to_.kept.log) attempt([&] { to_.kept.log->write(line); });
  if (shown) attempt([&] { write_stdout(line + "\n"); });
}

// in_folder: also to the metrics of the run's folder, if it has one.
void Recorder::event(const nlohmann::ordered_json& event, bool in_folder) {
  if (to_.metrics) attempt([&] { to_.metrics->append(json_line(event)); });
  if (in_folder && to_.kept.metrics) attempt([&] { to_.kept.metrics->append(event); });
  if (to_.kept.plots) to_.kept.plots->recorded(event);
}

// Keeps the OutputError that it throws.
void Recorder::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const OutputError&) {
    if (!first_error_) first_error_ = std::current_exception();
  }
}

void Recorder::print_curve() {
  if (flags_.quiet || !terminal_.interactive()) return;
  const auto curve = curve_text(accuracy_, plan_.epochs, terminal_.width(), utf8_locale());
  attempt([&] { write_stdout(curve); });
}

}  // namespace lockstep
