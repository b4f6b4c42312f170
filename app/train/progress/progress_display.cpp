#include <lockstep/app/train/progress/progress_display.h>

#include <unistd.h>

#include <utility>

#include <lockstep/app/files/line_file.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

bool is_terminal(int fd) { return Terminal(fd, ColorMode::kNever).interactive(); }

bool shows_bar(const TrainFlags& options) {
  if (options.progress == ProgressDisplay::kBar) return true;
  return options.progress == ProgressDisplay::kAuto && !options.quiet && is_terminal(STDOUT_FILENO) &&
         is_terminal(STDERR_FILENO);
}

// The one that must have the terminal. lockstep launch gives each of its processes a group of its own.
pid_t foreground_group(const TrainWorld& world) {
  return world.place.launcher == "lockstep launch" ? ::getpgid(::getppid()) : ::getpgrp();
}

}  // namespace

bool metrics_on_stdout(const TrainFlags& options) { return options.metrics == kStandardOutput; }

void check_progress_display(const TrainFlags& options) {
  if (options.progress == ProgressDisplay::kPlain && metrics_on_stdout(options)) {
    throw UsageError("--progress plain cannot be combined with --metrics -: both print to standard output",
                     "leave one of them out");
  }
  if (options.progress != ProgressDisplay::kBar || is_terminal(STDERR_FILENO)) return;
  throw UsageError("--progress bar draws on standard error, which is no terminal that can show it",
                   "leave it out: by default a bar is drawn where that is possible");
}

std::unique_ptr<LiveRun> live_display(const TrainPlan& plan, const TrainFlags& options, ColorMode color,
                                      SecondsClock clock) {
  if (!plan.world.leads() || !shows_bar(options)) return nullptr;
  return std::make_unique<LiveRun>(plan, Terminal(STDERR_FILENO, color), foreground_group(plan.world),
                                   std::move(clock));
}

}  // namespace lockstep
