#include <lockstep/parallel/collectives/step_votes.h>

#include <utility>

namespace lockstep {

StepVotes::StepVotes(ProcessGroup* group, int questions)
    : questions_(questions), channel_(group ? open_channel(*group) : nullptr) {}

uint64_t StepVotes::after_step(uint64_t own) {
  if (single_process()) return own;
  const auto before = read();
  tell(own);
  return before;
}

uint64_t StepVotes::agree_now(uint64_t own) {
  const auto before = after_step(own);
  return before | read();  // which has nothing for a process alone
}

void StepVotes::withdraw(uint64_t questions) {
  if (pending_.valid()) withdrawn_ |= questions;
}

uint64_t StepVotes::read() {
  if (!pending_.valid()) return 0;
  pending_.get();
  const auto* slot = told_.const_data_ptr<int64_t>();
  uint64_t votes = 0;
  for (int i = 0; i < questions_; ++i) votes |= uint64_t{slot[i] > 0} << i;
  return votes & ~std::exchange(withdrawn_, 0);
}

void StepVotes::tell(uint64_t own) {
  told_ = torch::zeros({questions_}, torch::kInt64);
  auto* slot = told_.mutable_data_ptr<int64_t>();
  for (int i = 0; i < questions_; ++i) slot[i] = own >> i & 1;
  pending_ = channel_->allreduce_sum(told_);
}

}  // namespace lockstep
