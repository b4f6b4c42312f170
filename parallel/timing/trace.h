// When each thread of a run did what: for a trace file, and for tests of the order of events.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/cuda/profiler_range.h>

namespace lockstep {

// Thread-safe. Does not depend on torch.
class Trace {
 public:
  // A replica's two threads, and the two streams of its GPU.
  enum class Track { kCompute, kCommunication, kDeviceCompute, kDeviceCommunication };

  struct Event {
    std::string name;  // "forward", "backward", "allreduce 0.516 MB", ...
    int rank = 0;
    Track track = Track::kCompute;
    double begin = 0;  // seconds since the trace was made
    double end = 0;
    // Positions in the order of all beginnings and ends, which also holds where times are equal.
    int64_t begin_order = 0;
    int64_t end_order = 0;
  };

  // An event from its construction to its destruction, and a range for a profiler. Without a trace it is only
  // the range.
  class Span {
   public:
    Span(Trace* trace, std::string name, int rank, Track track = Track::kCompute);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    Event event_;
    const ProfilerRange range_;
  };

  // Keeps the first `capacity` events, so that a long run does not fill the memory.
  explicit Trace(size_t capacity = 200'000) : capacity_(capacity) {}

  std::vector<Event> events() const;  // in the order of their ends
  size_t dropped() const;             // beyond the capacity, or lost with a failed GPU

  double seconds() const;  // since the trace was made

  // An event whose times are known later, such as a GPU's. Each resolve() asks for it until it is known. Its
  // positions in the order are those of that resolve().
  using Pending = std::function<std::optional<Event>()>;
  void add_later(Pending pending);
  void drop();  // an event that will never be known: dropped() counts it
  void resolve();

 private:
  using Clock = std::chrono::steady_clock;
  void begin(Event& event);
  void end(Event event);
  void keep(Event event);  // call it with the mutex held
  // Seconds since start_, and the next position in the order. Call it with the mutex held.
  std::pair<double, int64_t> now();

  const size_t capacity_;
  const Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;
  int64_t next_order_ = 0;
  size_t dropped_ = 0;
  std::vector<Event> events_;
  std::vector<Pending> pending_;
};

}  // namespace lockstep
