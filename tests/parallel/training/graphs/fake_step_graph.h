// A fake StepGraph, linked into a test instead of CUDA's: it keeps its work and runs it at each replay.
#pragma once

#include <atomic>
#include <string>

namespace lockstep::testing {

struct FakeStepGraphs {
  bool available = false;
  std::string refuses = {};      // the error of every capture; empty: none
  bool runs_at_capture = false;  // the work, as CUDA's capture calls it
  std::atomic<int> captured = 0;
  std::atomic<int> replayed = 0;

  FakeStepGraphs& operator=(const FakeStepGraphs& other) {
    available = other.available;
    refuses = other.refuses;
    runs_at_capture = other.runs_at_capture;
    captured = other.captured.load();
    replayed = other.replayed.load();
    return *this;
  }
};

// The state of all fakes. Do not change it while steps are under way.
FakeStepGraphs& fake_step_graphs();

}  // namespace lockstep::testing
