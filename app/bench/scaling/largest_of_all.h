// The numbers that the processes of `bench scaling` tell each other.
#pragma once

#include <memory>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/process_group.h>

namespace lockstep {

// Every process constructs one and makes the same calls. Not thread-safe.
class LargestOfAll {
 public:
  // group: null for this process alone. Throws as open_channel() does.
  explicit LargestOfAll(ProcessGroup* group);

  // Returns the largest of the numbers that all processes give. Waits until all have called it. Throws
  // PeerError when a process is lost. Alone: returns `own`.
  double of(double own);

  // Returns true if some process gives true.
  bool any(bool own) { return of(own ? 1 : 0) != 0; }

  // Waits until all processes have called it.
  void barrier() { of(0); }

 private:
  std::unique_ptr<Channel> channel_;  // null: alone
  int processes_ = 1;
};

}  // namespace lockstep
