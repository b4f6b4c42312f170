// What each thread of a run did when, for `--trace` and for tests that look at the order of events.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Safe to use from all threads at once. No torch in here.
class Trace {
 public:
  // A replica's two threads.
  enum class Lane { kCompute, kCommunication };

  struct Event {
    std::string name;  // "forward", "backward", "allreduce bucket 2", ...
    int rank = 0;
    Lane lane = Lane::kCompute;
    double begin = 0;  // seconds since the trace was made
    double end = 0;
    // Place among all beginnings and ends in the order in which they happened: exact where times are equal.
    int64_t begin_order = 0;
    int64_t end_order = 0;
  };

  // Measures from its construction to its destruction. With no trace it does nothing.
  class Span {
   public:
    Span(Trace* trace, std::string name, int rank, Lane lane = Lane::kCompute);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    Event event_;
  };

  // Remembers `capacity` events, the first ones, so that a long run does not fill the memory.
  explicit Trace(size_t capacity = 200'000) : capacity_(capacity) {}

  std::vector<Event> events() const;  // in the order of their ends
  size_t dropped() const;             // beyond the capacity

 private:
  using Clock = std::chrono::steady_clock;
  void begin(Event& event);
  void end(Event event);
  // Seconds since start_, and the next place in the order. The mutex is held.
  std::pair<double, int64_t> now();

  const size_t capacity_;
  const Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;
  int64_t next_order_ = 0;
  size_t dropped_ = 0;
  std::vector<Event> events_;
};

}  // namespace lockstep
