// The ranks of each process. Ranks are replicas, counted over the processes in order: with 3 and 1 replicas
// process 1 has rank 3.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class RankLayout {
 public:
  // replicas: how many each process drives. process: this one.
  RankLayout(const std::vector<int>& replicas, int process);

  int process() const { return process_; }
  int processes() const { return static_cast<int>(first_.size()) - 1; }
  int world_size() const { return first_.back(); }
  int first_rank() const { return first_rank(process_); }
  int first_rank(int process) const { return first_[static_cast<size_t>(process)]; }
  int replicas(int process) const { return first_rank(process + 1) - first_rank(process); }
  int most_replicas() const;       // of any process
  int process_of(int rank) const;  // rank: 0 .. world_size() - 1

 private:
  std::vector<int> first_ = {0};  // rank of each process; at the end world_size()
  int process_;
};

}  // namespace lockstep
