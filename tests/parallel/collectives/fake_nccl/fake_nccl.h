// Controls the fake NCCL.
#pragma once

#include <functional>

#include <lockstep/tests/parallel/collectives/fake_nccl/nccl.h>

namespace lockstep::testing {

struct FakeNccl {
  // Every call returns ncclInProgress this many times before it is done.
  int polls_in_progress = 3;
  // The results of these calls.
  ncclResult_t group_end = ncclSuccess;
  ncclResult_t collective = ncclSuccess;         // every collective call
  ncclResult_t after_collectives = ncclSuccess;  // state of a communicator once a collective was queued on it
  const char* last_error = "";
  std::function<void()> on_abort = [] {};  // called when a communicator has been aborted

  // Counters.
  int destroyed = 0;
  int aborted = 0;
};

// The only one. A test starts with reset_fake_nccl(), while there is no communicator.
FakeNccl& fake_nccl();
void reset_fake_nccl();

}  // namespace lockstep::testing
