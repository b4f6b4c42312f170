#include <lockstep/parallel/timing/step_times.h>

namespace lockstep {

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  data += other.data;
  compute += other.compute;
  sync += other.sync;
  update += other.update;
  return *this;
}

StepTimes StepTimes::operator/(double steps) const {
  return {.data = data / steps, .compute = compute / steps, .sync = sync / steps, .update = update / steps};
}

}  // namespace lockstep
