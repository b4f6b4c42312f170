// In place of CUDA's graphs: linked into a test, it keeps the work it is given and does that at each replay.
#pragma once

#include <atomic>
#include <string>

namespace lockstep::testing {

struct FakeStepGraphs {
  bool available = false;
  std::string refuses = {};  // what recording fails with; empty: it succeeds
  std::atomic<int> recorded = 0;
  std::atomic<int> replayed = 0;

  FakeStepGraphs& operator=(const FakeStepGraphs& other) {
    available = other.available;
    refuses = other.refuses;
    recorded = other.recorded.load();
    replayed = other.replayed.load();
    return *this;
  }
};

// The one that there is; not to be changed while steps are under way.
FakeStepGraphs& fake_step_graphs();

}  // namespace lockstep::testing
