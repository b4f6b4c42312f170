// A phase of a replica's work, in the trace and in a profiler: when its thread ran it, and on a GPU also when
// the GPU ran the queued work.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <string>

#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// Converts the times of a stream's events to the trace's time. Call it from the stream's own thread.
class DeviceClock {
 public:
  // Waits for the stream to compare its time with the trace's. The error is some microseconds, and never
  // shows an event too late. The trace must outlive the clock.
  DeviceClock(const c10::Stream& stream, Trace& trace);

  using Mark = std::shared_ptr<c10::Event>;  // with timing
  Mark mark() const;                         // when the stream reaches this point

  // Adds the span between two marks to the trace as soon as the GPU has passed them. The host does not wait.
  void add_span(std::string name, int rank, Trace::Track track, const Mark& begin, const Mark& end);
  // Counts a span whose times are unknown.
  void drop_span() { trace_.drop(); }

 private:
  const c10::Stream stream_;
  Trace& trace_;
  std::shared_ptr<const c10::Event> origin_;
  double origin_seconds_ = 0;  // the trace's time just before the stream passed origin_
};

// A span from its construction to its destruction. Without a trace it is only a range for a profiler.
class PhaseSpan {
 public:
  // clock: of the calling thread's stream; empty on a CPU or without a trace. It must outlive the span.
  PhaseSpan(Trace* trace, const std::string& name, int rank, Trace::Track track,
            std::optional<DeviceClock>& clock);
  ~PhaseSpan();
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  const std::string name_;
  const int rank_;
  const Trace::Track track_;
  DeviceClock* clock_;
  DeviceClock::Mark begin_;
  const Trace::Span host_;
};

}  // namespace lockstep
