// The texts of a training run: step lines, epoch lines and the closing line for people, and the lines of the
// --metrics file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/run_position.h>
#include <lockstep/parallel/timing/step_times.h>

namespace lockstep {

// The sums over the steps since a line, or over an epoch's steps. Times are of the run's clock, in
// seconds.
struct StepInterval {
  double begin = 0;
  double end = 0;  // of an interval that was taken
  int64_t steps = 0;
  int64_t rows = 0;
  double lr = 0;  // of the last step
  RowSums sums{};
  std::optional<StepTimes> times{};    // empty if the host cannot tell a step's phases apart
  int64_t skipped = 0;                 // steps without an update; only in fp16
  std::optional<double> loss_scale{};  // in fp16: of the step after the last one whose sums are known

  double seconds_per_step() const;
  double images_per_second() const { return static_cast<double>(rows) / (end - begin); }
  std::optional<StepTimes> mean_times() const;  // per step; empty without steps or times
};

struct EpochReport {
  int64_t epoch = 0;
  StepInterval trained{};
  double seconds = 0;  // of training alone, as if it had had no break
  RowSums test{};
  std::optional<RowSums> validation{};  // of the rows that are held out
  double test_seconds = 0;
};

struct RunReport {
  std::optional<double> test_accuracy{};  // nothing for a model that counts no classes
  double test_loss = 0;                   // mean over the test images, after the last epoch like the accuracy
  double train_loss = 0;                  // mean over the last epoch's images, each before its step
  double seconds_per_epoch = 0;  // training alone, scaled to a whole epoch if a limit cut the run short
  int64_t steps = 0;
  bool stopped_early = false;   // --patience was over
  double updates_per_step = 1;  // below 1 if steps were skipped in fp16
  int64_t peak_bytes = 0;
  bool was_finished = false;  // there was nothing left to do
  bool measured = true;       // accuracy and seconds are of all steps, on the plan's devices and test images
  std::optional<std::string> weights_sha256{};
};

// Returns what to do about a loss that is not finite: of a step, or of an evaluation.
std::string diverged_hint(const TrainPlan& plan, bool in_evaluation = false);

// All fit into 80 columns. Where steps were skipped in fp16 another line below says so:
// "    2 steps skipped, gradients not finite | loss scale 16384". The rest (memory, the time of the
// evaluation) is in the metrics. "epoch  1/10 | step  50/235 | loss 2.3028 | top1  9.7% top5 50.5% | 96,518
// img/s". Where that would be wider, without the number of epochs, and then without that of steps: the plan
// has them.
std::string step_line(const StepInterval& steps, const RunPosition& position, const TrainPlan& plan);
// "epoch  1/10 | train loss 2.3026 acc 0.100 | test loss 2.3017 acc 0.100 | 0.8 s", and a line below it:
// "    lr 0.2 | ms per step: data 0.1, compute 3.1, sync 0.0, update 0.0". The seconds are those of training.
std::string epoch_lines(const EpochReport& report, const TrainPlan& plan);
// In the chapter's format: "test acc: 0.83, 3.0 sec/epoch on [cuda:0, cuda:1]". If only some of the test
// images were evaluated, it says so.
std::string closing_line(const RunReport& report, const TrainPlan& plan);

// The events of --metrics.
nlohmann::ordered_json plan_json(const TrainPlan& plan);
// The shares that `--split auto` has settled on after this step of the run.
nlohmann::ordered_json split_json(int64_t step, const std::vector<double>& shares);
// Both step texts have the means of the interval that the step at this position ends.
nlohmann::ordered_json step_json(const StepInterval& steps, const RunPosition& position);
nlohmann::ordered_json epoch_json(const EpochReport& report);
// The run goes on after so many steps, with these settings instead of those of its plan.
nlohmann::ordered_json resumed_json(int64_t steps, const nlohmann::ordered_json& changed);
// The run has gone back to the checkpoint of `steps` steps. left_out: all steps that it does not take.
nlohmann::ordered_json went_back_json(int64_t steps, const std::vector<StepRange>& left_out,
                                      std::string_view reason);
// The last event says how the training ended. `status`: one of these.
inline constexpr std::string_view kStopped = "stopped", kDiverged = "diverged", kFailed = "failed";
nlohmann::ordered_json done_json(const RunReport& report);
nlohmann::ordered_json failed_json(std::string_view status, std::string_view reason, int64_t steps);

}  // namespace lockstep
