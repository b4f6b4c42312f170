#include <lockstep/app/train_run.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <lockstep/app/curve.h>
#include <lockstep/app/logging.h>
#include <lockstep/app/memory_usage.h>
#include <lockstep/app/weights_hash.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Only on the host is a phase over when its call returns.
bool phases_known(const TrainPlan& plan) {
  return std::all_of(plan.trainer.devices.begin(), plan.trainer.devices.end(),
                     [](const auto& device) { return device.is_cpu(); });
}

std::string diverged_hint(const TrainPlan& plan) {
  return fmt::format("training has diverged; try a learning rate below {:.3g}", plan.trainer.lr.lr);
}

}  // namespace

TrainRun::TrainRun(const TrainPlan& plan, const TrainOptions& options, const Terminal& terminal,
                   OutputFile* metrics)
    : plan_(plan),
      options_(options),
      terminal_(terminal),
      metrics_(metrics),
      trainer_(plan.factory, resident_sources(plan.data.set.train), resident_sources(plan.data.set.test),
               trainer_options()) {}

TrainerOptions TrainRun::trainer_options() {
  auto options = plan_.trainer;
  if (options_.trace) options.replica.sync.trace = &trace_;
  options.replica.notice = [](const std::string& text) { warn(text); };
  return options;
}

RunReport TrainRun::run() {
  record(plan_json(plan_));
  double seconds = 0;
  RunReport run;
  for (int64_t epoch = 1; steps_done_ < plan_.total_steps; ++epoch) {
    const auto report = run_epoch(epoch);
    seconds += report.seconds;
    accuracy_.push_back(report.test.accuracy());
    run.test_accuracy = report.test.accuracy();
    run.test_loss = report.test.loss();
    run.train_loss = mean_loss(report.sums);
    print(epoch_line(report, plan_));
    record(epoch_json(report));
    show_curve();
  }

  run.steps = steps_done_;
  run.peak_bytes = peak_resident_bytes();
  run.seconds_per_epoch =
      seconds * static_cast<double>(plan_.steps_per_epoch) / static_cast<double>(steps_done_);
  if (options_.print_weights_hash) run.weights_sha256 = weights_sha256(trainer_.weights());
  record(run_json(run));
  return run;
}

EpochReport TrainRun::run_epoch(int64_t epoch) {
  const auto order = batch_order(plan_.seed, epoch - 1, plan_.data.set.train.size());
  const auto steps = std::min(plan_.steps_per_epoch, plan_.total_steps - steps_done_);
  const auto batch_size = static_cast<size_t>(plan_.batch_size);
  epoch_sums_ = {};
  begin_interval();
  Stopwatch watch;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto begin = static_cast<size_t>(step - 1) * batch_size;
    run_step(std::span(order).subspan(begin, std::min(batch_size, order.size() - begin)));
    if (step % options_.log_every == 0 || steps_done_ == plan_.total_steps) report_steps(epoch, step);
    stop_if_interrupted(epoch, step);
  }
  take_sums(epoch);  // waits for the last step
  EpochReport report{.epoch = epoch, .sums = epoch_sums_, .seconds = watch.lap()};
  report.test = trainer_.evaluate();
  report.test_seconds = watch.lap();
  if (!std::isfinite(report.test.loss_sum)) {  // the last step left weights that no step has tried
    throw NumericError(fmt::format("the test loss after epoch {} was not finite", epoch),
                       diverged_hint(plan_));
  }
  return report;
}

void TrainRun::run_step(std::span<const int64_t> rows) {
  interval_.lr = trainer_.lr();
  const bool settled = trainer_.split_settled();
  trainer_.step(rows);
  if (!settled && trainer_.split_settled()) report_split();
  interval_.rows += static_cast<int64_t>(rows.size());
  ++interval_.steps;
  ++steps_done_;
  const bool reported_alone = options_.log_every == 1 || plan_.total_steps == 1;
  if (steps_done_ > 1 || reported_alone) return;
  // The run's first step includes what happens only once, so it is left out of the averages.
  trainer_.synchronize();
  begin_interval();
}

void TrainRun::begin_interval() {
  trainer_.take_times();  // of steps that no line is to speak of: the last ones of an epoch
  interval_ = {};
}

void TrainRun::report_steps(int64_t epoch, int64_t step) {
  StepReport report{.epoch = epoch, .step = step, .sums = take_sums(epoch)};  // waits for the step
  report.lr = interval_.lr;
  const double seconds = interval_.watch.lap();
  const auto steps = static_cast<double>(interval_.steps);
  report.seconds = seconds / steps;
  report.images_per_second = static_cast<double>(interval_.rows) / seconds;
  report.resident_bytes = resident_bytes();
  const auto times = trainer_.take_times();
  if (phases_known(plan_)) report.phases = times / steps;
  print(step_line(report, plan_));
  record(step_json(report));
  interval_ = {};
}

TrainSums TrainRun::take_sums(int64_t epoch) {
  const auto sums = trainer_.take_sums();
  trace_.resolve();  // what GPUs have done is known by now
  if (sums.bad) {
    const auto step_of_epoch = sums.bad->step - (epoch - 1) * plan_.steps_per_epoch + 1;
    throw NumericError(
        fmt::format("the loss was not finite at epoch {}, step {}, on replica {} ({})", epoch, step_of_epoch,
                    sums.bad->rank, plan_.trainer.devices.at(static_cast<size_t>(sums.bad->rank)).str()),
        diverged_hint(plan_));
  }
  epoch_sums_ += sums;
  return sums;
}

void TrainRun::report_split() const {
  std::vector<std::string> shares;
  for (const double share : trainer_.split()) shares.push_back(fmt::format("{:.3f}", share));
  const auto sizes = shard_sizes(plan_.batch_size, plan_.world_size(), trainer_.split());
  print(fmt::format("split settled after step {}: shares {} of a batch, {} images a replica", steps_done_ + 1,
                    fmt::join(shares, " : "), fmt::join(sizes, " : ")));
  record(split_json(steps_done_ + 1, trainer_.split()));
}

void TrainRun::stop_if_interrupted(int64_t epoch, int64_t step) {
  const auto signal = interrupt_.signal();
  if (!signal) return;
  take_sums(epoch);  // weights that are not finite are not to be kept
  throw InterruptedError(*signal, fmt::format("after step {} of epoch {}", step, epoch));
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
