// What the processes of `bench scaling` agree on.
#pragma once

#include <memory>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/process_group.h>

namespace lockstep {

// Every process constructs one and makes the same calls. Not thread-safe.
class LargestOfAll {
 public:
  // group: null for this process alone. Throws as ProcessGroup::open_channels() does.
  explicit LargestOfAll(ProcessGroup* group);

  // Returns the largest of the numbers that all processes give. Waits until all have called it. Throws
  // PeerError when a process is lost. Alone: returns `own`.
  double of(double own);

 private:
  std::unique_ptr<Channel> channel_;  // null: alone
  int processes_ = 1;
};

}  // namespace lockstep
