#include <lockstep/app/bench/scaling/largest_of_all.h>

#include <torch/types.h>

namespace lockstep {

LargestOfAll::LargestOfAll(ProcessGroup* group) : channel_(group ? open_channel(*group) : nullptr) {
  if (group) processes_ = group->world().processes;
}

double LargestOfAll::of(double own) {
  if (!channel_) return own;
  const auto tensor = torch::full({1}, own, torch::kFloat64);
  const auto all = torch::empty({processes_, 1}, torch::kFloat64);
  channel_->all_gather(tensor, all).get();
  return all.max().item<double>();
}

}  // namespace lockstep
