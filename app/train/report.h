// What a training run prints and records: step lines, epoch lines, the curve, the closing line, and the
// metrics file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/train/plan.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {

// What the steps since a line have come to.
struct StepInterval {
  double begin = 0;  // seconds of the run's clock
  int64_t steps = 0;
  int64_t rows = 0;
  double lr = 0;  // of the last step
  TrainSums sums{};
  StepTimes times{};
};

// Averages over such an interval.
struct StepReport {
  int64_t epoch = 0;  // from 1, as all numbers people see
  int64_t step = 0;   // within the epoch, from 1
  TrainSums sums{};
  double lr = 0;
  double seconds = 0;  // wall time a step
  double images_per_second = 0;
  int64_t resident_bytes = 0;
  std::optional<StepTimes> phases{};  // seconds a step; empty where the host cannot tell them apart
};

struct EpochReport {
  int64_t epoch = 0;
  TrainSums sums{};
  double seconds = 0;  // training alone
  Evaluation test{};
  double test_seconds = 0;
};

struct RunReport {
  double test_accuracy = 0;
  double test_loss = 0;          // the mean over the test images, as the accuracy after the last epoch
  double train_loss = 0;         // the mean over the last epoch's images, each before its step
  double seconds_per_epoch = 0;  // training alone, scaled to whole epochs where a limit cut the run short
  int64_t steps = 0;
  int64_t peak_bytes = 0;
  std::optional<std::string> weights_sha256{};
};

// Without epoch and step. `now`: when the last of these steps was done.
StepReport report_of(const StepInterval& interval, double now);

// Of an image.
double mean_loss(const TrainSums& sums);

std::string step_line(const StepReport& report, const TrainPlan& plan);
std::string epoch_line(const EpochReport& report, const TrainPlan& plan);
// The chapter's: "test acc: 0.83, 3.0 sec/epoch on [cuda:0, cuda:1]"; it says where only some of the test
// images were asked.
std::string closing_line(const RunReport& report, const TrainPlan& plan);

// The same as JSON, one object a line, for --metrics.
std::string plan_json(const TrainPlan& plan);
// The shares that `--split auto` has settled on, after this step of the run.
std::string split_json(int64_t step, const std::vector<double>& shares);
std::string step_json(const StepReport& report);
std::string epoch_json(const EpochReport& report);
// The last line tells how the training ended. `status`: stopped, diverged or failed.
std::string done_json(const RunReport& report);
std::string failed_json(std::string_view status, std::string_view reason, int64_t steps);

}  // namespace lockstep
