#include <lockstep/app/processes/assemble.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <lockstep/app/processes/together.h>
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
  auto names = Member::array(), wishes = Member::array();
  for (const auto& list : lists) {
    names.push_back(Member::array());
    for (const auto& device : list) names.back().push_back(device.str());
    wishes.push_back(text_of_wish(own_wish(Allreduce::kAuto, list)));
  }
  return {{"lists", std::move(names)}, {"wishes", std::move(wishes)}};
}

std::vector<Member> meet(const TrainWorld& world, const std::function<Member()>& introduce) {
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
  world.wishes.clear();
  for (const auto& member : members) {
    auto& devices = world.devices.emplace_back();
    for (const auto& name : member.at("lists").at(list)) devices.emplace_back(name.get<std::string>());
    world.wishes.push_back(read_wish(member.at("wishes").at(list).get<std::string>()));
  }
}

void refuse_other_settings(const std::vector<Json>& settings, const std::string& verb) {
  for (size_t process = 1; process < settings.size(); ++process) {
    for (const auto& [key, first] : settings.front().items()) {
      const auto& other = settings[process].at(key);
      if (other == first) continue;
      throw UsageError(fmt::format("process {} {} with {} {}, process 0 with {}", process, verb,
                                   key_in_words(key), value_in_words(other), value_in_words(first)),
                       "give all processes the same flags and the same data");
    }
  }
}

std::string local_spec(const std::string& spec, const World& place, int gpus) {
  if (spec != "auto" || gpus == 0) return spec;
  return fmt::format("cuda:{}", place.local_process % gpus);
}

}  // namespace lockstep
