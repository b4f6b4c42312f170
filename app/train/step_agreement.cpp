#include <lockstep/app/train/step_agreement.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

// The questions. Where signals differ, the first one of the list wins in all processes.
constexpr std::array kAgreedSignals = {SIGHUP, SIGINT, SIGTERM};
constexpr uint64_t kOutputFailed = uint64_t{1} << kAgreedSignals.size();
constexpr uint64_t kLineDue = kOutputFailed << 1;
constexpr uint64_t kCheckpointDue = kLineDue << 1;
constexpr int kQuestions = static_cast<int>(kAgreedSignals.size()) + 3;

uint64_t votes_of(const StepNews& news) {
  uint64_t votes = 0;
  for (size_t i = 0; i < kAgreedSignals.size(); ++i) {
    if (news.signal == kAgreedSignals[i]) votes |= uint64_t{1} << i;
  }
  if (news.output_failed) votes |= kOutputFailed;
  if (news.line_due) votes |= kLineDue;
  if (news.checkpoint_due) votes |= kCheckpointDue;
  return votes;
}

StepNews news_of(uint64_t votes) {
  StepNews news{.output_failed = (votes & kOutputFailed) != 0,
                .line_due = (votes & kLineDue) != 0,
                .checkpoint_due = (votes & kCheckpointDue) != 0};
  for (size_t i = kAgreedSignals.size(); i-- > 0;) {
    if (votes >> i & 1) news.signal = kAgreedSignals[i];
  }
  return news;
}

}  // namespace

StepAgreement::StepAgreement(ProcessGroup* group) : votes_(group, kQuestions) {}

StepNews StepAgreement::after_step(const StepNews& own) { return news_of(votes_.after_step(votes_of(own))); }

StepNews StepAgreement::agree_now(const StepNews& own) { return news_of(votes_.agree_now(votes_of(own))); }

void StepAgreement::line_printed() { votes_.withdraw(kLineDue); }

void StepAgreement::checkpoint_made() { votes_.withdraw(kCheckpointDue); }

}  // namespace lockstep
