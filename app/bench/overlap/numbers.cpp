#include <lockstep/app/bench/overlap/numbers.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

bool side_by_side(const Trace::Event& a, const Trace::Event& b) {
  return std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

}  // namespace

std::optional<double> hidden_part(const std::vector<double>& compute, const std::vector<double>& copy,
                                  const std::vector<double>& together) {
  if (compute.size() != together.size() || copy.size() != together.size()) {
    throw UsageError(fmt::format("{} and {} repetitions of the parts, {} of both together", compute.size(),
                                 copy.size(), together.size()));
  }
  if (together.size() < kRatioRepeats) return std::nullopt;
  std::vector<double> parts;
  for (size_t i = 0; i < together.size(); ++i) {
    parts.push_back((compute[i] + copy[i] - together[i]) / std::min(compute[i], copy[i]));
  }
  return median(parts);
}

bool is_copy(const Trace::Event& event) {
  return event.track == Trace::Track::kCommunication || event.track == Trace::Track::kDeviceCommunication;
}

int64_t computed_beside_a_copy(const std::vector<Trace::Event>& events) {
  return std::count_if(events.begin(), events.end(), [&](const auto& event) {
    return !is_copy(event) && std::any_of(events.begin(), events.end(), [&](const auto& other) {
      return is_copy(other) && side_by_side(event, other);
    });
  });
}

int64_t most_at_once(const std::vector<Trace::Event>& events) {
  std::vector<std::pair<double, int>> changes;  // an end sorts before a begin at the same time
  for (const auto& event : events) {
    if (is_copy(event)) continue;
    changes.emplace_back(event.begin, 1);
    changes.emplace_back(event.end, -1);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

int64_t copies_ahead(const std::vector<Trace::Event>& events, double slack) {
  std::map<std::pair<int, std::string>, double> ends;
  for (const auto& event : events) {
    if (!is_copy(event)) ends[{event.rank, event.name}] = event.end;
  }
  return std::count_if(events.begin(), events.end(), [&](const auto& event) {
    if (!event.name.starts_with("copy ")) return false;
    const auto matmul = ends.find({event.rank, "matmul " + event.name.substr(5)});
    return matmul == ends.end() || event.begin < matmul->second - slack;
  });
}

Json timeline(const std::string& experiment, const std::vector<Trace::Event>& events,
              const std::vector<std::string>& processes) {
  auto rows = Json::array();
  double origin = std::numeric_limits<double>::infinity();
  for (const auto& event : events) origin = std::min(origin, event.begin);
  for (const auto& event : events) {
    const auto& process = processes.at(static_cast<size_t>(event.rank));
    rows.push_back({{"experiment", experiment},
                    {"track", process + (is_copy(event) ? " copy" : " compute")},
                    {"name", event.name},
                    {"begin", event.begin - origin},
                    {"end", event.end - origin}});
  }
  return rows;
}

}  // namespace lockstep
