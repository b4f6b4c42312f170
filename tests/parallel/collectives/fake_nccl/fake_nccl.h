// What a test makes the fake NCCL do.
#pragma once

#include <functional>

#include <lockstep/tests/parallel/collectives/fake_nccl/nccl.h>

namespace lockstep::testing {

struct FakeNccl {
  // Calls say ncclInProgress this many times before they are done.
  int polls_in_progress = 3;
  // What these answer, where it is not ncclSuccess.
  ncclResult_t group_end = ncclSuccess;
  ncclResult_t collective = ncclSuccess;         // every collective call
  ncclResult_t after_collectives = ncclSuccess;  // state of a communicator once a collective was queued on it
  const char* last_error = "";
  std::function<void()> on_abort = [] {};  // called when a communicator has been aborted

  // What has happened.
  int destroyed = 0;
  int aborted = 0;
};

// The one that there is; a test starts with reset_fake_nccl(), while no communicator is alive.
FakeNccl& fake_nccl();
void reset_fake_nccl();

}  // namespace lockstep::testing
