#include <lockstep/app/train/print_run.h>

#include <fmt/format.h>

#include <string>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

// The same in the log, where lines stay whole.
std::string plan_text(const TrainPlan& plan, size_t width) {
  return fmt::format("{}\n{}\n", version_text(), describe(plan, width));
}

// These two do not print where the metrics' last line says it all.

void print_hash(const RunReport& report, const TrainFlags& options, RunLog* log) {
  if (!report.weights_sha256) return;
  print_and_log(log, metrics_on_stdout(options), fmt::format("weights sha256: {}\n", *report.weights_sha256));
}

void print_closing_line(const RunReport& report, const TrainPlan& plan, const TrainFlags& options,
                        RunLog* log) {
  print_and_log(log, metrics_on_stdout(options), closing_line(report, plan) + "\n");
}

}  // namespace

bool metrics_on_stdout(const TrainFlags& options) { return options.metrics == kStandardOutput; }

void print_plan(const TrainPlan& plan, const TrainFlags& options, const Terminal& terminal, RunLog* log) {
  if (log) log->write(plan_text(plan, std::string::npos));
  if (options.dry_run && (options.json || metrics_on_stdout(options))) {
    write_stdout(json_line(plan_json(plan)));
  } else if (!options.quiet) {
    write_stdout(plan_text(plan, terminal.text_width()));
  }
  for (const auto& notice : machine_notices(plan)) warn(notice);
  for (const auto& notice : batch_notices(plan)) warn(notice);
  if (const auto notice = rate_notice(plan)) warn(*notice);
}

void print_result(const RunReport& report, const TrainPlan& plan, const TrainFlags& options, RunLog* log) {
  if (report.steps % plan.steps_per_epoch != 0) {
    print_and_log(log, options.quiet,
                  fmt::format("stopped after {} (--limit-steps); sec/epoch is scaled to an epoch of {}\n",
                              counted(report.steps, "step"), counted(plan.steps_per_epoch, "step")));
  }
  print_and_log(log, options.quiet,
                fmt::format("peak memory{}: {} resident ({} estimated)\n",
                            plan.world.single_process() ? "" : " of process 0",
                            megabytes_text(report.peak_bytes), megabytes_text(plan.memory_estimate)));
  print_hash(report, options, log);
  print_closing_line(report, plan, options, log);
}

void print_finished(const RunReport& report, const TrainPlan& plan, const TrainFlags& options, RunLog* log) {
  const auto steps = counted(plan.total_steps, "step");
  const auto text = report.steps > plan.total_steps
                        ? fmt::format("this run ends after {}, the checkpoint has {}", steps, report.steps)
                        : fmt::format("all {} of this run are done", steps);
  // Without a closing line it is the last line, which a quiet run prints.
  const bool silent = report.measured ? options.quiet : metrics_on_stdout(options);
  print_and_log(log, silent,
                fmt::format("{}: there is nothing left to do{}\n", text,
                            report.measured ? "" : " (lockstep eval RUN tests its weights)"));
  print_hash(report, options, log);
  if (report.measured) print_closing_line(report, plan, options, log);
}

}  // namespace lockstep
