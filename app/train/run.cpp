#include <lockstep/app/train/run.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/files/program_weights.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/loop.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Thrown = std::exception_ptr;

// Returns what the action throws; null: nothing.
Thrown thrown_by(const std::function<void()>& action) {
  try {
    action();
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

// The meaning of an error for the run that it has ended.
struct Ending {
  Thrown error = nullptr;        // null: the run is done
  std::string_view status = {};  // these two: of the metrics' last line
  std::string reason = {};
  bool keeps_weights = false;
  bool agreed = false;  // all processes have ended after the same step
};

Ending ending_of(const Thrown& thrown, const TrainPlan& plan) {
  const auto reason = as_error(thrown).message();
  try {
    std::rethrow_exception(thrown);
  } catch (const InterruptedError&) {
    return {thrown, kStopped, reason, /*keeps_weights=*/true, /*agreed=*/true};
  } catch (const OutputError&) {
    return {thrown, kFailed, reason, /*keeps_weights=*/true, /*agreed=*/true};
  } catch (const NumericError&) {
    return {thrown, kDiverged, reason, /*keeps_weights=*/false, /*agreed=*/true};
  } catch (const OutOfSyncError&) {
    return {thrown, kFailed, reason, /*keeps_weights=*/false, /*agreed=*/true};
  } catch (const c10::OutOfMemoryError& error) {
    const auto explained = out_of_memory(error.what_without_backtrace(), plan);
    return {std::make_exception_ptr(explained), kFailed, explained.message()};
  } catch (const std::exception&) {
    return {thrown, kFailed, reason};
  }
}

// Writes the weights and the trace of the steps taken. If one cannot be written, still writes the other, and
// returns the first error. All processes collect the weights and process 0 writes; then they leave together.
// So what is kept needs no other process, and an error of process 0 is its own.
Thrown keep(TrainLoop& loop, const TrainPlan& plan, const TrainFlags& flags, RunOutputs& outputs) {
  Thrown first;
  const auto attempt = [&](const std::function<void()>& action) {
    const auto failed = thrown_by(action);
    if (failed && first) warn(as_error(failed).message());
    if (failed && !first) first = failed;
  };
  const auto say = [&](const std::string& line) { print_and_log(outputs.kept.log.get(), flags.quiet, line); };
  const bool has_trained = loop.steps_done() > 0;
  const bool saves = flags.save && has_trained;
  std::vector<NamedTensor> weights;
  if (saves) attempt([&] { weights = loop.weights(); });
  const bool collected = !first;
  if (saves && collected && plan.world.leads()) {
    attempt([&] {
      if (plan.program) {
        save_program_weights(plan.program, weights, *flags.save, flags.overwrite, plan.facts);
      } else {
        save_weights(std::move(weights), plan.model, *flags.save, flags.overwrite, plan.facts);
      }
      say(fmt::format("{} saved to {}\n", loop.has_average() ? "averaged weights" : "weights", *flags.save));
    });
  }
  if (outputs.trace && has_trained) {
    attempt([&] {
      write_chrome_trace(loop.trace(), *outputs.trace, warn);
      say(fmt::format("trace written to {}\n", *flags.trace));
    });
  }
  attempt([&] { outputs.kept.finish(flags.quiet); });
  if (collected) leave_together(plan.world);
  return first;
}

// Keeps what a run leaves. What fails there is its error, unless an output has failed before: on a full disk
// the next checkpoint fails like the first one.
void keep_and_note(Ending& ending, TrainLoop& loop, const TrainPlan& plan, const TrainFlags& flags,
                   RunOutputs& outputs) {
  const auto failed = keep(loop, plan, flags, outputs);
  if (failed && ending.status == kFailed) return warn(as_error(failed).message());
  if (failed) ending.error = failed;
}

}  // namespace

RunReport run_and_keep(const TrainPlan& plan, const TrainFlags& flags, Recorder& record, RunOutputs& outputs,
                       std::optional<RunState> resume) {
  std::optional<TrainLoop> loop;
  RunReport report;
  Ending ending{.keeps_weights = true, .agreed = true};
  if (const auto thrown = thrown_by([&] {
        loop.emplace(plan, flags, record, resume);
        resume.reset();  // its tensors are the trainer's now
        report = loop->run();
      })) {
    ending = ending_of(thrown, plan);
    if (!loop) ending.keeps_weights = ending.agreed = false;  // the others may still build theirs
  }
  if (loop && ending.status == kStopped) {  // keeps its last step, too, if that has not diverged
    const auto bad = thrown_by([&] {
      loop->save_if_new();
      record.throw_if_failed();  // of the checkpoint before
    });
    if (bad) ending = ending_of(bad, plan);
  }
  if (ending.error && loop) record.failed(ending.status, ending.reason, loop->steps_done());
  if (ending.keeps_weights) {
    keep_and_note(ending, *loop, plan, flags, outputs);
  } else if (ending.agreed) {
    leave_together(plan.world);
  }
  if (!ending.error) return report;
  if (outputs.kept.log) outputs.kept.log->note("error: " + as_error(ending.error).message());
  std::rethrow_exception(ending.error);
}

RunReport run_silently(const TrainPlan& plan, TrainFlags flags) {
  flags.quiet = true;
  RunOutputs none;
  Recorder nobody(plan, flags, ColorMode::kNever, none);
  return run_and_keep(plan, flags, nobody, none);
}

}  // namespace lockstep
