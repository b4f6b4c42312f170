#include <lockstep/app/train/going_back.h>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int kMostTimes = 10;  // a training that has diverged does so at every step

// The bad step. If it, or those before it, are left out already, the step before them has made the weights
// bad: it goes, too.
StepRange left_out_by_skip(const RunPosition& position, int64_t earliest, int64_t bad) {
  auto first = bad;
  while (first > earliest && position.leaves_out(first - 1)) --first;
  const bool made_before = first < bad || position.leaves_out(bad);
  if (made_before && first > earliest) --first;
  return {.first = first, .last = bad};
}

}  // namespace

void GoingBack::count(const LossError& error) {
  if (!is_wanted()) throw error;
  if (times_ == kMostTimes) {
    throw LossError(fmt::format("{}, after the run had gone back {} times", error.message(), times_),
                    error.hint(), error.step());
  }
  ++times_;
}

std::optional<StepRange> GoingBack::leave_out(RunPosition& position, int64_t steps_done, int64_t bad) const {
  const auto earliest = steps_done + 1;
  const auto range = on_nan_ == OnNan::kRollback ? StepRange{.first = earliest, .last = bad}
                                                 : left_out_by_skip(position, earliest, bad);
  if (bad < earliest || position.leaves_out(range)) return std::nullopt;
  position.left_out.push_back(range);
  return range;
}

}  // namespace lockstep
