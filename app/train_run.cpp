#include <lockstep/app/train_run.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include <lockstep/app/curve.h>
#include <lockstep/app/memory_usage.h>
#include <lockstep/app/weights_hash.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

SourceFactory resident(const ImageSet& set) {
  return [set](torch::Device device) { return make_resident_source(set, device); };
}

// Only on the host is a phase over when its call returns.
bool phases_known(const TrainPlan& plan) {
  return std::all_of(plan.devices.begin(), plan.devices.end(),
                     [](const auto& device) { return device.is_cpu(); });
}

}  // namespace

TrainRun::TrainRun(const TrainPlan& plan, const TrainOptions& options, const Terminal& terminal,
                   OutputFile* metrics)
    : plan_(plan),
      options_(options),
      terminal_(terminal),
      metrics_(metrics),
      trainer_(plan.initial, plan.network, resident(plan.data.train), resident(plan.data.test),
               {.devices = plan.devices, .threads = plan.threads, .lr = plan.lr}) {}

RunReport TrainRun::run() {
  record(plan_json(plan_));
  double seconds = 0;
  for (int64_t epoch = 1; steps_done_ < plan_.total_steps; ++epoch) {
    const auto report = run_epoch(epoch);
    seconds += report.seconds;
    accuracy_.push_back(report.test.accuracy());
    print(epoch_line(report, plan_));
    record(epoch_json(report));
    show_curve();
  }

  RunReport report{
      .test_accuracy = accuracy_.back(), .steps = steps_done_, .peak_bytes = peak_resident_bytes()};
  report.seconds_per_epoch =
      seconds * static_cast<double>(plan_.steps_per_epoch) / static_cast<double>(steps_done_);
  if (options_.print_weights_hash)
    report.weights_sha256 = weights_sha256(trainer_.params(0), plan_.parameter_names);
  record(run_json(report));
  return report;
}

EpochReport TrainRun::run_epoch(int64_t epoch) {
  const auto order = batch_order(plan_.seed, epoch - 1, plan_.data.train.size());
  const auto steps = std::min(plan_.steps_per_epoch, plan_.total_steps - steps_done_);
  const auto batch_size = static_cast<size_t>(plan_.batch_size);
  epoch_sums_ = {};
  interval_ = {};
  Stopwatch watch;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto begin = static_cast<size_t>(step - 1) * batch_size;
    run_step(std::span(order).subspan(begin, std::min(batch_size, order.size() - begin)));
    if (step % options_.log_every == 0 || steps_done_ == plan_.total_steps) report_steps(epoch, step);
    stop_if_interrupted(epoch, step);
  }
  take_sums(epoch, steps);  // waits for the last step
  EpochReport report{.epoch = epoch, .sums = epoch_sums_, .seconds = watch.lap()};
  report.test = trainer_.evaluate();
  report.test_seconds = watch.lap();
  return report;
}

void TrainRun::run_step(std::span<const int64_t> rows) {
  interval_.times += trainer_.step(rows);
  interval_.rows += static_cast<int64_t>(rows.size());
  ++interval_.steps;
  ++steps_done_;
  const bool reported_alone = options_.log_every == 1 || plan_.total_steps == 1;
  if (steps_done_ > 1 || reported_alone) return;
  // The run's first step includes what happens only once, so it is left out of the averages.
  trainer_.synchronize();
  interval_ = {};
}

void TrainRun::report_steps(int64_t epoch, int64_t step) {
  StepReport report{.epoch = epoch, .step = step, .sums = take_sums(epoch, step)};  // waits for the step
  const double seconds = interval_.watch.lap();
  const auto steps = static_cast<double>(interval_.steps);
  report.seconds = seconds / steps;
  report.images_per_second = static_cast<double>(interval_.rows) / seconds;
  if (phases_known(plan_)) report.phases = interval_.times / steps;
  print(step_line(report, plan_));
  record(step_json(report, plan_));
  interval_ = {};
}

TrainSums TrainRun::take_sums(int64_t epoch, int64_t step) {
  const auto sums = trainer_.take_sums();
  if (!std::isfinite(sums.loss)) {
    throw NumericError(
        fmt::format("the loss is {} at epoch {}, step {} or a little before", sums.loss, epoch, step),
        fmt::format("training has diverged; try a learning rate below {}", plan_.lr));
  }
  epoch_sums_ += sums;
  return sums;
}

void TrainRun::stop_if_interrupted(int64_t epoch, int64_t step) const {
  const auto signal = interrupt_.signal();
  if (!signal) return;
  const auto code = *signal == SIGINT ? ExitCode::kInterrupt : ExitCode::kTerminate;
  throw Error(code, fmt::format("stopped by {} after step {} of epoch {}",
                                *signal == SIGINT ? "Ctrl-C" : "SIGTERM", step, epoch));
}

void TrainRun::show_curve() const {
  constexpr int kWidth = 64;
  constexpr int kHeight = 9;  // spaces the labels of the axis evenly
  if (options_.quiet || !terminal_.interactive() || plan_.epochs < 2) return;
  write_stdout(draw_curve(accuracy_, static_cast<int>(plan_.epochs), std::min(kWidth, terminal_.width()),
                          kHeight, utf8_locale()));
}

void TrainRun::print(const std::string& line) const {
  if (!options_.quiet) write_stdout(line + "\n");
}

void TrainRun::record(const std::string& json) const {
  if (metrics_) metrics_->append_line(json);
}

}  // namespace lockstep
