#include <lockstep/app/bench/step/phases.h>

#include <algorithm>

namespace lockstep {

TracedPhases phases_of(std::vector<Trace::Event> events, const std::vector<Trace::Track>& tracks,
                       int64_t steps) {
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  TracedPhases sum;
  std::vector<double> ready(
      tracks.size());  // when each rank's backward ended, or its gather if it has no rows
  for (const auto& event : events) {
    const auto rank = static_cast<size_t>(event.rank);
    if (rank >= tracks.size() || event.track != tracks[rank]) continue;
    const double seconds = event.end - event.begin;
    if (event.name == "gather") sum.data += seconds;
    if (event.name == "forward") sum.forward += seconds;
    if (event.name == "backward") sum.backward += seconds;
    if (event.name == "gather" || event.name == "backward") ready[rank] = event.end;
    if (event.name != "update") continue;
    sum.update += seconds;
    sum.sync += event.begin - ready[rank];
  }
  const double count = static_cast<double>(steps) * static_cast<double>(tracks.size());
  return {.data = sum.data / count,
          .forward = sum.forward / count,
          .backward = sum.backward / count,
          .sync = sum.sync / count,
          .update = sum.update / count};
}

}  // namespace lockstep
