#include <lockstep/app/processes/train_world.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>

#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>

namespace lockstep {

int TrainWorld::replicas_before(int process) const {
  size_t count = 0;
  for (size_t i = 0; i < devices.size() && i < static_cast<size_t>(process); ++i) count += devices[i].size();
  return static_cast<int>(count);
}

std::string TrainWorld::name() const {
  const auto process = fmt::format("process {}", place.process);
  if (devices.empty()) return process;
  const int first = first_rank(), last = replicas_before(place.process + 1) - 1;
  return first == last ? fmt::format("rank {} ({})", first, process)
                       : fmt::format("ranks {}-{} ({})", first, last, process);
}

std::string TrainWorld::replica_device(int rank) const {
  auto local = static_cast<size_t>(rank);
  size_t process = 0;
  for (; local >= devices.at(process).size(); ++process) local -= devices[process].size();
  return fmt::format("{} of process {}", devices[process][local].str(), process);
}

std::string TrainWorld::device_lists() const {
  constexpr size_t kFewestCounted = 3;  // as in to_string() of one list
  std::vector<std::string> lists;
  for (size_t begin = 0; begin < devices.size();) {
    size_t end = begin + 1;
    while (end < devices.size() && devices[end] == devices[begin]) ++end;
    const size_t equal = end - begin;
    const auto list = to_string(devices[begin]);
    if (equal >= kFewestCounted) lists.push_back(fmt::format("{} x {}", list, equal));
    if (equal < kFewestCounted) lists.insert(lists.end(), equal, list);
    begin = end;
  }
  return fmt::format("{}", fmt::join(lists, " + "));
}

std::string TrainWorld::text() const {
  const auto launcher = place.launcher.empty() ? "" : fmt::format(" ({})", place.launcher);
  return fmt::format("{}{}, {}: {}", place.processes, launcher, counted(replicas(), "replica"),
                     device_lists());
}

}  // namespace lockstep
