#include <lockstep/parallel/phase_span.h>

#include <utility>

namespace lockstep {

DeviceClock::DeviceClock(const c10::Stream& stream, Trace& trace)
    : stream_(stream), trace_(trace), origin_(mark().event) {
  origin_->synchronize();  // once a run: the two clocks are read at the same moment
  origin_seconds_ = trace.seconds();
}

DeviceClock::Mark DeviceClock::mark() const {
  auto event = std::make_shared<c10::Event>(stream_.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(stream_);
  return {std::move(event)};
}

void DeviceClock::add_span(std::string name, int rank, Trace::Lane lane, const Mark& begin, const Mark& end) {
  const auto seconds = [origin = origin_, at = origin_seconds_](const c10::Event& event) {
    return at + origin->elapsedTime(event) / 1e3;  // ms
  };
  trace_.add_later([=, name = std::move(name)]() -> std::optional<Trace::Event> {
    if (!end.event->query()) return std::nullopt;
    Trace::Event event{.name = name, .rank = rank, .lane = lane};
    event.begin = seconds(*begin.event);
    event.end = seconds(*end.event);
    return event;
  });
}

namespace {

Trace::Lane on_device(Trace::Lane lane) {
  return lane == Trace::Lane::kCompute ? Trace::Lane::kDeviceCompute : Trace::Lane::kDeviceCommunication;
}

}  // namespace

PhaseSpan::PhaseSpan(Trace* trace, const std::string& name, int rank, Trace::Lane lane,
                     std::optional<DeviceClock>& clock)
    : name_(name),
      rank_(rank),
      lane_(lane),
      clock_(clock ? &*clock : nullptr),
      begin_(clock_ ? clock_->mark() : DeviceClock::Mark{}),
      host_(trace, name, rank, lane) {}

PhaseSpan::~PhaseSpan() {
  if (clock_) clock_->add_span(name_, rank_, on_device(lane_), begin_, clock_->mark());
}

}  // namespace lockstep
