// Where recompute() would give other numbers than the part alone, and is refused.
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <vector>

namespace lockstep {

// While one lives, recompute() in this thread throws this error; null: it throws none. May be nested; the
// innermost counts.
class RecomputeRefused {
 public:
  explicit RecomputeRefused(std::exception_ptr error);
  ~RecomputeRefused();
  RecomputeRefused(const RecomputeRefused&) = delete;
  RecomputeRefused& operator=(const RecomputeRefused&) = delete;

 private:
  const std::exception_ptr outer_;
};

// Throws the error of this thread, if it has one.
void require_recompute();

// The error of a replica whose GPU other replicas of this process have, too: they draw from one generator,
// which a second run sets back. Null for others.
std::exception_ptr refusal_on_shared_gpu(const std::vector<c10::Device>& devices, int local);

// The error of a step under capture: a replayed graph runs no code of the host, which runs the part again. A
// FailedError, since the step can run without a graph.
std::exception_ptr refusal_under_capture();

}  // namespace lockstep
