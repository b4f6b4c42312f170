#include <lockstep/app/processes/assemble.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <lockstep/app/processes/together.h>
#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

size_t most_replicas(const Member& member) {
  size_t most = 0;
  for (const auto& list : member.at("lists")) most = std::max(most, list.size());
  return most;
}

}  // namespace

Member member_with(std::span<const std::vector<torch::Device>> lists) {
  auto names = Member::array(), supports = Member::array();
  for (const auto& list : lists) {
    names.push_back(Member::array());
    for (const auto& device : list) names.back().push_back(device.str());
    supports.emplace_back(nlohmann::json(support_of(list)));
  }
  return {{"lists", std::move(names)}, {"supports", std::move(supports)}};
}

std::vector<Member> gather_members(const TrainWorld& world, const std::function<Member()>& introduce) {
  auto members = together(world, [&] {
    auto member = introduce();
    member["machine"] = machine_name();
    member["cores"] = allowed_cores();
    return member;
  });
  std::vector<CoreUser> users;
  users.reserve(members.size());
  for (const auto& member : members) {
    users.push_back(
        {.machine = member.at("machine"), .cores = member.at("cores"), .replicas = most_replicas(member)});
  }
  pin_to_share(users, static_cast<size_t>(world.place.process));
  return members;
}

void take_list(const std::vector<Member>& members, size_t list, TrainWorld& world) {
  world.devices.clear();
  world.supports.clear();
  for (const auto& member : members) {
    auto& devices = world.devices.emplace_back();
    for (const auto& name : member.at("lists").at(list)) devices.emplace_back(name.get<std::string>());
    world.supports.push_back(nlohmann::json(member.at("supports").at(list)).get<AllreduceSupport>());
  }
}

void agree_on_settings(const TrainWorld& world, const std::function<Json()>& action) {
  std::vector<Lines> all;
  for (const auto& settings : together(world, action)) {
    auto& lines = all.emplace_back();
    for (const auto& [key, value] : settings.items()) {
      lines.push_back(fmt::format("{} {}", key_in_words(key), value_in_words(value)));
    }
  }
  require_same(all, "process", "settings", "give all processes the same flags and the same data");
}

std::string local_spec(const std::string& spec, const World& place, int gpus) {
  if (spec != "auto" || gpus == 0) return spec;
  return fmt::format("cuda:{}", place.process_on_host % gpus);
}

}  // namespace lockstep
