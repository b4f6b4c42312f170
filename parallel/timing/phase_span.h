// A phase of a replica's work, in the trace and in a profiler: when its thread was in it, and on a GPU also
// when the work that it queued ran there.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <string>

#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// What a stream's events say in a trace's own time. Used from the thread whose stream it is.
class DeviceClock {
 public:
  // Waits for the stream, to learn how its time and the trace's relate: to some microseconds, and never so
  // that an event would be later than it was. The trace outlives the clock.
  DeviceClock(const c10::Stream& stream, Trace& trace);

  using Mark = std::shared_ptr<c10::Event>;  // with timing
  Mark mark() const;                         // when the stream comes this far

  // Adds what ran between two marks to the trace, as soon as it has run; the host does not wait.
  void add_span(std::string name, int rank, Trace::Track track, const Mark& begin, const Mark& end);
  // Counts one that cannot be told.
  void drop_span() { trace_.drop(); }

 private:
  const c10::Stream stream_;
  Trace& trace_;
  std::shared_ptr<const c10::Event> origin_;
  double origin_seconds_ = 0;  // the trace's time just before the stream passed origin_
};

// From its construction to its destruction. With no trace it only marks the range for a profiler.
class PhaseSpan {
 public:
  // clock: of the calling thread's stream; none on a CPU or without a trace. It outlives the span.
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
