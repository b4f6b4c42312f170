#include <lockstep/app/report/bench_replicas.h>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <lockstep/app/processes/assemble.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// In several processes `auto` depends on the place.
std::vector<std::vector<torch::Device>> local_lists(const World& place, BenchOptions options,
                                                    const std::vector<std::string>& otherwise) {
  if (options.devices.empty()) options.devices = otherwise;
  for (auto& spec : options.devices) spec = local_spec(spec, place, visible_gpus());
  return device_lists(options, {});
}

void refuse_other_numbers_of_lists(const std::vector<Member>& members) {
  const auto lists_of = [](const Member& member) { return static_cast<int64_t>(member.at("lists").size()); };
  for (size_t process = 1; process < members.size(); ++process) {
    const auto own = lists_of(members[process]), first = lists_of(members.front());
    if (own == first) continue;
    throw UsageError(
        fmt::format("process {} has {} of devices, process 0 has {}", process, counted(own, "list"), first),
        "give --devices equally often to all processes");
  }
}

}  // namespace

std::string BenchReplicas::spec() const {
  constexpr size_t kFewestCounted = 3;  // as in TrainWorld::device_lists()
  if (world.single_process()) return spec_of(devices);
  const auto& lists = world.devices;
  std::string text;
  for (size_t begin = 0; begin < lists.size();) {
    size_t end = begin + 1;
    while (end < lists.size() && lists[end] == lists[begin]) ++end;
    const size_t equal = end - begin;
    const auto list = spec_of(lists[begin]);
    if (equal >= kFewestCounted) {
      text += fmt::format("{}{}({})", text.empty() ? "" : "+", equal, list);
    } else {
      for (size_t i = 0; i < equal; ++i) text += (text.empty() ? "" : "+") + list;
    }
    begin = end;
  }
  return text;
}

std::vector<BenchReplicas> bench_replicas(const TrainWorld& world, const BenchOptions& options,
                                          const std::vector<std::string>& otherwise) {
  std::vector<BenchReplicas> all;
  if (world.single_process()) {
    for (auto& devices : device_lists(options, otherwise)) {
      all.push_back({.world = world, .devices = std::move(devices)});
    }
    return all;
  }
  const auto members = meet(world, [&] { return member_with(local_lists(world.place, options, otherwise)); });
  refuse_other_numbers_of_lists(members);
  for (size_t list = 0; list < members.front().at("lists").size(); ++list) {
    BenchReplicas replicas{.world = world};
    take_list(members, list, replicas.world);
    replicas.devices = replicas.world.devices.at(static_cast<size_t>(world.place.process));
    all.push_back(std::move(replicas));
  }
  return all;
}

}  // namespace lockstep
