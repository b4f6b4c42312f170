#include <lockstep/parallel/collectives/rank_layout.h>

#include <algorithm>

namespace lockstep {

RankLayout::RankLayout(const std::vector<int>& replicas, int process) : process_(process) {
  for (const int count : replicas) first_.push_back(first_.back() + count);
}

int RankLayout::most_replicas() const {
  int most = 0;
  for (int process = 0; process < processes(); ++process) most = std::max(most, replicas(process));
  return most;
}

int RankLayout::process_of(int rank) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), rank) - first_.begin()) - 1;
}

}  // namespace lockstep
