#include <lockstep/app/bench/scaling/lists.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {

ScalingLists::ScalingLists(const BenchScalingOptions& options, std::vector<BenchReplicas> lists)
    : options_(options), lists_(std::move(lists)) {
  for (const auto& list : lists_) longest_ = std::max(longest_, static_cast<int>(list.devices.size()));
  threads_ = threads_for(options_.bench, static_cast<size_t>(longest_));
  if (!single_process()) connect_parts();
}

void ScalingLists::connect_parts() {
  const auto& group = lists_.front().world.process_group;
  for (const int count : worlds_up_to(processes())) {
    if (count == 1) continue;
    const bool all = count == processes();
    parts_[count] = all ? group : process() < count ? group->subgroup(count) : nullptr;
  }
}

BenchReplicas ScalingLists::first_processes(const BenchReplicas& replicas, int count) const {
  if (single_process()) return replicas;
  BenchReplicas part{.world = {}, .devices = replicas.devices};
  if (count == 1) return part;
  part.world.process_group = parts_.at(count);
  if (part.world.process_group) part.world.place = part.world.process_group->world();
  part.world.place.processes = count;
  const auto& devices = replicas.world.devices;
  part.world.devices.assign(devices.begin(), devices.begin() + count);
  const auto& supports = replicas.world.supports;
  part.world.supports.assign(supports.begin(), supports.begin() + count);
  return part;
}

ScalingCase ScalingLists::make_case(Scaling scaling, const BenchReplicas& replicas, int64_t divisor) {
  ScalingCase made{.scaling = scaling, .devices = replicas.spec()};
  made.plan = scaling_plan(options_, scaling, replicas, threads_, data_, divisor);
  return made;
}

ScalingCase ScalingLists::case_of_first(Scaling scaling, const BenchReplicas& replicas, int count) {
  const auto part = first_processes(replicas, count);
  if (process() < count) return make_case(scaling, part);
  // One process has no world with its devices.
  const auto spec = count == 1 ? spec_of(replicas.world.devices.front()) : part.spec();
  return {.scaling = scaling, .devices = spec, .trains = false};
}

std::vector<ScalingCase> ScalingLists::cases() {
  BenchReplicas first = lists_.front();
  first.devices.resize(1, torch::kCPU);  // no element is added: the CPU is never used
  if (!single_process()) first.world.devices.front().resize(1, torch::kCPU);
  std::vector<ScalingCase> all{case_of_first(Scaling::kStrong, first, 1)};
  for (const auto scaling : scaling_modes(options_)) {
    for (const auto& list : lists_) {
      for (const int count : worlds_up_to(processes())) {
        const auto in_first = single_process() ? list.devices.size() : list.world.devices.front().size();
        if (count > 1 || in_first > 1) all.push_back(case_of_first(scaling, list, count));
      }
    }
  }
  if (single_process()) add_other_devices(all);
  return all;
}

void ScalingLists::add_other_devices(std::vector<ScalingCase>& all) {
  std::vector<torch::Device> measured{lists_.front().devices.front()};
  for (const auto& list : lists_) {
    for (const auto device : list.devices) {
      if (std::find(measured.begin(), measured.end(), device) != measured.end()) continue;
      if (options_.train.split != "auto" && list.devices.size() > 1) continue;
      measured.push_back(device);
      all.push_back(make_case(Scaling::kStrong, {.devices = {device}}));
    }
  }
}

std::vector<ScalingCase> ScalingLists::fractions() {
  std::vector<ScalingCase> all;
  BenchReplicas replicas{.devices = lists_.front().devices};
  if (single_process()) replicas.devices.resize(1, torch::kCPU);
  for (const int64_t divisor : {1, 2, 4}) {
    all.push_back(make_case(Scaling::kStrong, replicas, divisor));
    if (!single_process() || !replicas.devices.front().is_cpu()) continue;
    all.back().background_load = std::max(0, std::min(longest_, replicas_with_own_cores()) - 1);
  }
  return all;
}

int ScalingLists::replicas_with_own_cores() const {
  return static_cast<int>(allowed_cores().size()) / threads_;
}

}  // namespace lockstep
