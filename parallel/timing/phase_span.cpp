#include <lockstep/parallel/timing/phase_span.h>

#include <limits>
#include <utility>

namespace lockstep {

// The stream passes an event between two times that the host reads. The try with the shortest time between
// them gives the origin.
DeviceClock::DeviceClock(const c10::Stream& stream, Trace& trace) : stream_(stream), trace_(trace) {
  double closest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const double before = trace.seconds();
    const auto event = mark();
    event->synchronize();
    const double between = trace.seconds() - before;
    if (between >= closest) continue;
    closest = between;
    origin_ = event;
    origin_seconds_ = before;
  }
}

DeviceClock::Mark DeviceClock::mark() const {
  auto event = std::make_shared<c10::Event>(stream_.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(stream_);
  return event;
}

void DeviceClock::add_span(std::string name, int rank, Trace::Track track, const Mark& begin,
                           const Mark& end) {
  const auto seconds = [origin = origin_, at = origin_seconds_](const c10::Event& event) {
    return at + origin->elapsedTime(event) / 1e3;  // ms
  };
  trace_.add_later([=, name = std::move(name)]() -> std::optional<Trace::Event> {
    if (!end->query()) return std::nullopt;
    Trace::Event event{.name = name, .rank = rank, .track = track};
    event.begin = seconds(*begin);
    event.end = seconds(*end);
    return event;
  });
}

namespace {

Trace::Track on_device(Trace::Track track) {
  return track == Trace::Track::kCompute ? Trace::Track::kDeviceCompute : Trace::Track::kDeviceCommunication;
}

}  // namespace

PhaseSpan::PhaseSpan(Trace* trace, const std::string& name, int rank, Trace::Track track,
                     std::optional<DeviceClock>& clock)
    : name_(name),
      rank_(rank),
      track_(track),
      clock_(clock ? &*clock : nullptr),
      begin_(clock_ ? clock_->mark() : DeviceClock::Mark{}),
      host_(trace, name, rank, track) {}

PhaseSpan::~PhaseSpan() {
  if (!clock_) return;
  try {
    clock_->add_span(name_, rank_, on_device(track_), begin_, clock_->mark());
  } catch (const std::exception&) {
    // A failed GPU reports its error to every later caller, too, and those can throw.
    clock_->drop_span();
  }
}

}  // namespace lockstep
