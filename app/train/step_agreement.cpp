#include <lockstep/app/train/step_agreement.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// The slots of the vector that is summed. Where signals differ, the first one of the list wins in all
// processes.
constexpr std::array kAgreedSignals = {SIGHUP, SIGINT, SIGTERM};
constexpr size_t kOutputFailed = kAgreedSignals.size();
constexpr size_t kLineDue = kOutputFailed + 1;
constexpr size_t kCheckpointDue = kLineDue + 1;
constexpr size_t kSlots = kCheckpointDue + 1;

torch::Tensor slots_of(const StepNews& news) {
  auto slots = torch::zeros({static_cast<int64_t>(kSlots)}, torch::kInt64);
  auto* slot = slots.data_ptr<int64_t>();
  for (size_t i = 0; i < kAgreedSignals.size(); ++i) slot[i] = news.signal == kAgreedSignals[i];
  slot[kOutputFailed] = news.output_failed;
  slot[kLineDue] = news.line_due;
  slot[kCheckpointDue] = news.checkpoint_due;
  return slots;
}

StepNews news_of(const torch::Tensor& slots) {
  const auto* slot = slots.const_data_ptr<int64_t>();
  StepNews news{.output_failed = slot[kOutputFailed] > 0,
                .line_due = slot[kLineDue] > 0,
                .checkpoint_due = slot[kCheckpointDue] > 0};
  for (size_t i = kAgreedSignals.size(); i-- > 0;) {
    if (slot[i] > 0) news.signal = kAgreedSignals[i];
  }
  return news;
}

}  // namespace

StepAgreement::StepAgreement(ProcessGroup* group) : channel_(group ? open_channel(*group) : nullptr) {}

StepNews StepAgreement::after_step(const StepNews& own) {
  if (single_process()) return own;
  const auto before = read();
  tell(own);
  return before;
}

StepNews StepAgreement::agree_now(const StepNews& own) {
  const auto before = after_step(own);
  auto all = read();  // nothing for a process alone
  if (before.signal) all.signal = before.signal;
  all.output_failed |= before.output_failed;
  all.line_due |= before.line_due;
  all.checkpoint_due |= before.checkpoint_due;
  return all;
}

void StepAgreement::line_printed() { line_printed_ = pending_.valid(); }

void StepAgreement::checkpoint_made() { checkpoint_made_ = pending_.valid(); }

StepNews StepAgreement::read() {
  if (!pending_.valid()) return {};
  pending_.get();
  auto news = news_of(told_);
  if (std::exchange(line_printed_, false)) news.line_due = false;
  if (std::exchange(checkpoint_made_, false)) news.checkpoint_due = false;
  return news;
}

void StepAgreement::tell(const StepNews& own) {
  told_ = slots_of(own);
  pending_ = channel_->allreduce_sum(told_);
}

}  // namespace lockstep
