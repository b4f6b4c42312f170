#include <lockstep/app/report/bench_replicas.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <lockstep/app/processes/assemble.h>
#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>

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
  std::vector<Lines> numbers;
  for (const auto& member : members) {
    numbers.push_back({counted(static_cast<int64_t>(member.at("lists").size()), "list")});
  }
  require_same(numbers, "process", "--devices", "give --devices equally often to all processes");
}

}  // namespace

std::string BenchReplicas::spec() const {
  if (world.single_process()) return spec_of(devices);
  std::vector<std::string> lists;
  for_equal_lists(world.devices, [&](const auto& list, size_t count) {
    lists.push_back(count == 1 ? spec_of(list) : fmt::format("{}({})", count, spec_of(list)));
  });
  return fmt::format("{}", fmt::join(lists, "+"));
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
  const auto members =
      gather_members(world, [&] { return member_with(local_lists(world.place, options, otherwise)); });
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
