// What each thread of a run did when, for `--trace` and for tests that look at the order of events.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/profiler_range.h>

namespace lockstep {

// Safe to use from all threads at once. No torch in here.
class Trace {
 public:
  // A replica's two threads, and what their work kept a GPU's streams busy with.
  enum class Track { kCompute, kCommunication, kDeviceCompute, kDeviceCommunication };

  struct Event {
    std::string name;  // "forward", "backward", "allreduce bucket 2", ...
    int rank = 0;
    Track track = Track::kCompute;
    double begin = 0;  // seconds since the trace was made
    double end = 0;
    // Place among all beginnings and ends in the order in which they happened: exact where times are equal.
    int64_t begin_order = 0;
    int64_t end_order = 0;
  };

  // Measures from its construction to its destruction, and is a range for a profiler that watches the
  // program. With no trace it is only that.
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

  // Remembers `capacity` events, the first ones, so that a long run does not fill the memory.
  explicit Trace(size_t capacity = 200'000) : capacity_(capacity) {}

  std::vector<Event> events() const;  // in the order of their ends
  size_t dropped() const;             // beyond the capacity, or lost with a GPU that failed

  double seconds() const;  // since the trace was made

  // An event that is known later, such as what a GPU has been doing: each resolve() asks for it until there
  // is an answer. Its places in the order are those of the moment at which it is known.
  using Pending = std::function<std::optional<Event>()>;
  void add_later(Pending pending);
  void drop();  // one that will never be known: dropped() counts it
  void resolve();

 private:
  using Clock = std::chrono::steady_clock;
  void begin(Event& event);
  void end(Event event);
  void keep(Event event);  // the mutex is held, as in the next
  // Seconds since start_, and the next place in the order. The mutex is held.
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
