#include <lockstep/parallel/timing/trace.h>

#include <exception>
#include <tuple>
#include <utility>

namespace lockstep {

Trace::Span::Span(Trace* trace, std::string name, int rank, Track track)
    : trace_(trace), event_{.name = std::move(name), .rank = rank, .track = track}, range_(event_.name) {
  if (trace_) trace_->begin(event_);
}

Trace::Span::~Span() {
  if (trace_) trace_->end(std::move(event_));
}

std::vector<Trace::Event> Trace::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

size_t Trace::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

double Trace::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

std::pair<double, int64_t> Trace::now() { return {seconds(), next_order_++}; }

void Trace::begin(Event& event) {
  const std::lock_guard lock(mutex_);
  std::tie(event.begin, event.begin_order) = now();
}

// Takes the time and adds the event under one lock: otherwise a later end of another thread could come first.
void Trace::end(Event event) {
  const std::lock_guard lock(mutex_);
  std::tie(event.end, event.end_order) = now();
  keep(std::move(event));
}

void Trace::keep(Event event) {
  if (events_.size() < capacity_) {
    events_.push_back(std::move(event));
  } else {
    ++dropped_;
  }
}

void Trace::add_later(Pending pending) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(pending));
}

void Trace::drop() {
  const std::lock_guard lock(mutex_);
  ++dropped_;
}

void Trace::resolve() {
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [this](const Pending& pending) {
    std::optional<Event> event;
    try {
      event = pending();
    } catch (const std::exception&) {  // its GPU has failed; other events stay
      ++dropped_;
      return true;
    }
    if (!event) return false;
    event->begin_order = next_order_++;
    event->end_order = next_order_++;
    keep(std::move(*event));
    return true;
  });
}

}  // namespace lockstep
