// Which process has which ranks. Ranks are replicas, counted over the processes in order.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class ProcessGroup;

class RankLayout {
 public:
  // replicas: how many each process drives, at least one. process: this one.
  RankLayout(std::vector<int> replicas, int process);

  int process() const { return process_; }
  int processes() const { return static_cast<int>(replicas_.size()); }
  int replicas(int process) const { return replicas_[static_cast<size_t>(process)]; }
  int most_replicas() const { return most_replicas_; }  // of any process
  int world_size() const { return world_size_; }
  int first_rank() const { return first_rank_; }  // of this process
  int process_of(int rank) const;                 // rank: 0 .. world_size() - 1

 private:
  std::vector<int> replicas_;
  int process_;
  int most_replicas_ = 0;
  int world_size_ = 0;
  int first_rank_ = 0;
};

// The layout of a process with this many replicas in this group (null: it is alone). All processes call it.
// Throws as ProcessGroup::gather() does, and UsageError when a process has called something else.
RankLayout gather_layout(int replicas, ProcessGroup* group);

}  // namespace lockstep
