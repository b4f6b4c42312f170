#include <lockstep/app/terminal/line_timer.h>

#include <chrono>
#include <utility>

namespace lockstep {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void LineTimer::start(double now) {
  part_from_ = now;
  if (!started_ || !first_) since_ = now;
  started_ = true;
}

bool LineTimer::due(double now) {
  const double part = now - std::exchange(part_from_, now);
  return now - since_ + part > (first_ ? kFirstLine : kBetweenLines);
}

void LineTimer::shown(double now) {
  first_ = false;
  since_ = part_from_ = now;
}

}  // namespace lockstep
