#include <lockstep/app/bench/scaling/largest_of_all.h>

#include <torch/types.h>

#include <utility>

namespace lockstep {

LargestOfAll::LargestOfAll(ProcessGroup* group) {
  if (!group) return;
  auto channels = group->open_channels(1);
  channel_ = std::move(channels.front());
  processes_ = group->world().processes;
}

double LargestOfAll::of(double own) {
  if (!channel_) return own;
  const auto tensor = torch::full({1}, own, torch::kFloat64);
  const auto all = torch::empty({processes_, 1}, torch::kFloat64);
  channel_->all_gather(tensor, all).get();
  return all.max().item<double>();
}

}  // namespace lockstep
