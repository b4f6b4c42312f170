#include <lockstep/parallel/collectives/rank_layout.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <utility>

#include <lockstep/parallel/process_group.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

int replicas_in(const std::string& text, int process) {
  int replicas = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, replicas);
  if (result.ec == std::errc() && result.ptr == end && replicas > 0) return replicas;
  throw UsageError(fmt::format("process {} said \"{}\" in place of its number of replicas", process, text),
                   "start all processes with the same program and options");
}

}  // namespace

RankLayout::RankLayout(std::vector<int> replicas, int process)
    : replicas_(std::move(replicas)), process_(process) {
  const auto own = replicas_.begin() + process_;
  most_replicas_ = *std::max_element(replicas_.begin(), replicas_.end());
  world_size_ = std::accumulate(replicas_.begin(), replicas_.end(), 0);
  first_rank_ = std::accumulate(replicas_.begin(), own, 0);
}

int RankLayout::process_of(int rank) const {
  int process = 0;
  while (rank >= replicas(process)) rank -= replicas(process++);
  return process;
}

RankLayout gather_layout(int replicas, ProcessGroup* group) {
  if (!group) return {{replicas}, 0};
  std::vector<int> all;
  for (const auto& text : group->gather(std::to_string(replicas))) {
    all.push_back(replicas_in(text, static_cast<int>(all.size())));
  }
  return {std::move(all), group->world().process};
}

}  // namespace lockstep
