#include <lockstep/app/processes/train_world.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>

#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>

namespace lockstep {

RankLayout TrainWorld::layout() const {
  std::vector<int> replicas;
  for (const auto& list : devices) replicas.push_back(static_cast<int>(list.size()));
  return {replicas, place.process};
}

Allreduce TrainWorld::chosen_allreduce(Allreduce wanted, std::span<const torch::Device> own) const {
  return single_process() ? choose_allreduce(wanted, own) : choose_for_all(wanted, supports);
}

std::string TrainWorld::name() const {
  const auto process = fmt::format("process {}", place.process);
  if (devices.empty()) return process;
  const auto ranks = layout();
  const int first = ranks.first_rank(), last = first + ranks.replicas(place.process) - 1;
  return first == last ? fmt::format("rank {} ({})", first, process)
                       : fmt::format("ranks {}-{} ({})", first, last, process);
}

std::string TrainWorld::replica_device(int rank) const {
  const auto ranks = layout();
  const int process = ranks.process_of(rank), local = rank - ranks.first_rank(process);
  return fmt::format("{} of process {}",
                     devices.at(static_cast<size_t>(process)).at(static_cast<size_t>(local)).str(), process);
}

std::string TrainWorld::device_lists() const {
  std::vector<std::string> lists;
  for_equal_lists(devices, [&](const auto& list, size_t count) {
    lists.push_back(count == 1 ? to_string(list) : fmt::format("{} x {}", to_string(list), count));
  });
  return fmt::format("{}", fmt::join(lists, " + "));
}

std::string TrainWorld::text() const {
  const auto launcher = place.launcher.empty() ? "" : fmt::format(" ({})", place.launcher);
  return fmt::format("{}{}, {}: {}", place.processes, launcher, counted(layout().world_size(), "replica"),
                     device_lists());
}

void for_equal_lists(const std::vector<std::vector<torch::Device>>& lists,
                     const std::function<void(const std::vector<torch::Device>& list, size_t count)>& each) {
  constexpr size_t kFewestCounted = 3;  // as in to_string() of one list
  for (size_t begin = 0, end = 0; begin < lists.size(); begin = end) {
    while (end < lists.size() && lists[end] == lists[begin]) ++end;
    const size_t equal = end - begin;
    if (equal >= kFewestCounted) {
      each(lists[begin], equal);
    } else {
      for (size_t i = 0; i < equal; ++i) each(lists[begin], 1);
    }
  }
}

}  // namespace lockstep
