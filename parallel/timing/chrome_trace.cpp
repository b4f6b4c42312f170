#include <lockstep/parallel/timing/chrome_trace.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <set>
#include <utility>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// By Trace::Track.
constexpr const char* kTrackNames[] = {"compute", "communication", "GPU compute", "GPU communication"};

// To the nanosecond.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

Json name_event(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

std::string process_name(int rank, const std::vector<std::string>& names) {
  const auto index = static_cast<size_t>(rank);
  return index < names.size() ? names[index] : fmt::format("replica {}", rank);
}

}  // namespace

void write_chrome_trace(const Trace& trace, AtomicFile& file, const Notice& notice,
                        const std::vector<std::string>& names) {
  // A name may hold bytes that are not UTF-8, for which the library would throw.
  const auto add = [&](const Json& event) {
    file.write(event.dump(-1, ' ', false, Json::error_handler_t::replace) + ",\n");
  };
  file.write("[\n");
  std::set<int> ranks;
  std::set<std::pair<int, int>> tracks;  // a replica on a CPU has no GPU tracks
  for (const auto& event : trace.events()) {
    const int track = static_cast<int>(event.track);
    if (ranks.insert(event.rank).second) {
      add(name_event("process_name", event.rank, 0, process_name(event.rank, names)));
    }
    if (tracks.insert({event.rank, track}).second) {
      add(name_event("thread_name", event.rank, track, kTrackNames[track]));
    }
    add({{"ph", "X"},
         {"name", event.name},
         {"pid", event.rank},
         {"tid", track},
         {"ts", microseconds(event.begin)},
         {"dur", microseconds(event.end - event.begin)}});
  }
  file.write(Json{{"ph", "M"}, {"name", "trace_end"}, {"pid", 0}, {"args", Json::object()}}.dump() + "\n]\n");
  file.commit();
  if (notice && trace.dropped() > 0) {
    notice(fmt::format("the trace holds the first {} events; {} more were left out", trace.events().size(),
                       trace.dropped()));
  }
}

}  // namespace lockstep
