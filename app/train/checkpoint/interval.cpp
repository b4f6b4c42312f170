#include <lockstep/app/train/checkpoint/interval.h>

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {

CheckpointInterval parse_interval(const std::string& text) {
  constexpr int64_t kMaxCount = 1'000'000'000;
  int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit(stop, static_cast<size_t>(text.data() + text.size() - stop));
  if (error == std::errc() && count > 0 && count <= kMaxCount) {
    if (unit.empty() || unit == "step" || unit == "steps") return {.steps = count};
    if (unit == "epoch" || unit == "epochs") return {.epochs = count};
    if (unit == "s") return {.seconds = static_cast<double>(count)};
  }
  throw UsageError(
      fmt::format("--checkpoint-every must be a number of steps, seconds or epochs, got {}", in_quotes(text)),
      "for example --checkpoint-every 500, 60s or 1epoch");
}

bool CheckpointSchedule::due_by_clock(double now) const {
  return every_ && every_->seconds > 0 && now - made_at_ >= every_->seconds;
}

bool CheckpointSchedule::due(int64_t steps_done, const RunPosition& position, bool told) const {
  if (!every_) return false;
  if (every_->steps > 0) return steps_done % every_->steps == 0;
  if (every_->epochs > 0) return position.step == 0 && (position.epoch - 1) % every_->epochs == 0;
  return told;
}

void CheckpointSchedule::made(int64_t steps_done, double now) {
  made_steps_ = steps_done;
  made_at_ = now;
}

}  // namespace lockstep
