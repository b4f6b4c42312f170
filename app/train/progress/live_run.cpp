#include <lockstep/app/train/progress/live_run.h>

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <lockstep/app/train/progress/curve.h>
#include <lockstep/support/batches.h>

namespace lockstep {
namespace {

constexpr int kCurveWidth = 64;
constexpr int kCurveHeight = 9;  // the axis labels are evenly spaced

// Every character takes one column. In UTF-8 each has one byte that does not go on with another character.
int columns_of(std::string_view text) {
  return static_cast<int>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The epochs of the whole run, which --limit-steps may shorten.
int64_t epochs_of(const TrainPlan& plan) { return batches_of(plan.total_steps, plan.steps_per_epoch); }

}  // namespace

std::string curve_text(std::span<const double> accuracy, int64_t epochs, int width, bool utf8) {
  if (epochs < 2) return "";
  auto text =
      draw_curve(accuracy, static_cast<int>(epochs), std::min(kCurveWidth, width), kCurveHeight, utf8);
  const auto lines = lines_of(text);
  const bool fits = std::ranges::all_of(lines, [&](const auto& line) { return columns_of(line) <= width; });
  return fits ? text : "";
}

std::vector<std::string> live_lines(const LiveFigures& figures, std::span<const double> accuracy, int width,
                                    int height, bool utf8, const Style& style) {
  auto line = live_line(figures, static_cast<size_t>(std::max(width - 1, 0)), utf8, style);
  if (line.empty() || height < 2) return {};
  std::vector<std::string> lines = {std::move(line)};
  if (accuracy.size() < 2) return lines;
  auto curve = lines_of(curve_text(accuracy, figures.epochs, width - 1, utf8));
  if (static_cast<int>(lines.size() + curve.size()) < height) {
    lines.insert(lines.end(), std::make_move_iterator(curve.begin()), std::make_move_iterator(curve.end()));
  }
  return lines;
}

LiveRun::LiveRun(const TrainPlan& plan, const Terminal& terminal, pid_t group, SecondsClock clock)
    : plan_(plan),
      terminal_(terminal),
      clock_(std::move(clock)),
      utf8_(utf8_locale()),
      block_(STDERR_FILENO, group),
      drawn_at_(clock_()),
      steps_left_(plan.total_steps) {
  figures_.epochs = plan.epochs;
  figures_.speed_unit = speed_unit(plan.data.set);
}

void LiveRun::begin(int64_t epoch, int64_t steps_done, std::span<const double> accuracy) {
  figures_.epoch = epoch;
  figures_.done = static_cast<double>(steps_done) / static_cast<double>(plan_.total_steps);
  figures_.evaluated.reset();
  steps_left_ = plan_.total_steps - steps_done;
  accuracy_.assign(accuracy.begin(), accuracy.end());
  set_left(1);
  draw();
}

void LiveRun::steps(const StepInterval& interval, int64_t steps_done) {
  if (!due()) return;
  set_steps(interval, steps_done, clock_());
  set_left(1);
  draw();
}

void LiveRun::trained(const StepInterval& interval, int64_t steps_done) {
  evaluation_begin_ = clock_();
  set_steps(interval, steps_done, evaluation_begin_);
  trained_steps_ += interval.steps;
  trained_seconds_ += evaluation_begin_ - interval.begin;
}

void LiveRun::evaluation(int64_t rows_done, int64_t rows) {
  if (!due()) return;
  figures_.evaluated = static_cast<double>(rows_done) / static_cast<double>(rows);
  const double whole = (clock_() - evaluation_begin_) / *figures_.evaluated;
  if (!evaluation_measured_) seconds_per_evaluation_ = whole;
  set_left(1 - *figures_.evaluated);
  draw();
}

void LiveRun::evaluated(double seconds) {
  seconds_per_evaluation_ = seconds;
  evaluation_measured_ = true;
}

void LiveRun::set_steps(const StepInterval& interval, int64_t steps_done, double now) {
  figures_.done = static_cast<double>(steps_done) / static_cast<double>(plan_.total_steps);
  steps_left_ = plan_.total_steps - steps_done;
  if (interval.sums.rows > 0) figures_.sums = interval.sums;
  const double seconds = now - interval.begin;
  if (interval.steps == 0 || seconds <= 0) return;
  figures_.images_per_second = static_cast<double>(interval.rows) / seconds;
  seconds_per_step_ = (trained_seconds_ + seconds) / static_cast<double>(trained_steps_ + interval.steps);
}

// evaluations_of_epoch: what is left of this epoch's evaluation, from 0 to 1.
void LiveRun::set_left(double evaluations_of_epoch) {
  if (seconds_per_step_ == 0) return;
  figures_.seconds_left = seconds_of(
      {.steps = steps_left_,
       .seconds_per_step = seconds_per_step_,
       .evaluations = static_cast<double>(epochs_of(plan_) - figures_.epoch) + evaluations_of_epoch,
       .seconds_per_evaluation = seconds_per_evaluation_});
}

void LiveRun::draw() {
  block_.show(
      live_lines(figures_, accuracy_, terminal_.width(), terminal_.height(), utf8_, terminal_.style()));
  drawn_at_ = clock_();
}

}  // namespace lockstep
