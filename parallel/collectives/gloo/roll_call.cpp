#include <lockstep/parallel/collectives/gloo/roll_call.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/support/error.h>

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Presence, host, machine, pid, address, cores)

namespace {

using std::chrono::milliseconds;
using RollClock = std::chrono::steady_clock;

constexpr milliseconds kLook{200};  // how often a waiting process looks for a refusal
constexpr const char* kRefused = "roll/refused";
constexpr const char* kRollHint = "start each process once, with the same number of processes in each";

std::string roll_key(int process) { return fmt::format("roll/{}", process); }

// The network namespace: containers of one machine have loopback interfaces of their own.
std::string network_namespace() {
  std::array<char, 64> name{};
  const auto size = ::readlink("/proc/self/ns/net", name.data(), name.size());
  return std::string(name.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
}

std::string name_of_pid(const Presence& presence) {
  return fmt::format("pid {} on {}", presence.pid, presence.host);
}

// Throws; in process 0, whose end takes the store with it, after the others have had time to look.
[[noreturn]] void refuse_roll(const ProcessStore& store, const std::string& why) {
  if (store.is_served_here()) std::this_thread::sleep_for(2 * kLook);
  throw DeviceError(why, kRollHint);
}

[[noreturn]] void refuse_for_all(const ProcessStore& store, const std::string& why) {
  store.set(kRefused, why);
  refuse_roll(store, why);
}

Presence parse_presence(const ProcessStore& store, int process, const std::string& text) try {
  return nlohmann::json::parse(text).get<Presence>();
} catch (const nlohmann::json::exception&) {
  constexpr size_t kMostShown = 60;
  refuse_for_all(
      store, fmt::format("process {} is of another version of lockstep: it introduces itself as {}", process,
                         text.substr(0, kMostShown)));
}

void agree_on_size(const ProcessStore& store, const World& world, const Presence& own) {
  const auto size = std::to_string(world.processes);
  const auto agreed = store.set_if_new("roll/size", size);
  if (agreed == size) return;
  refuse_for_all(store, fmt::format("process {} ({}) counts {} processes, another one {}", world.process,
                                    name_of_pid(own), size, agreed));
}

void claim_place(const ProcessStore& store, const World& world, const Presence& own) {
  const auto key = roll_key(world.process);
  if (store.add(key + "/claims", 1) == 1) return store.set(key, wire_text(own));
  auto first = std::string("another process");
  if (store.wait({key}, 10 * kLook)) {
    first = name_of_pid(parse_presence(store, world.process, store.get({key}).front()));
  }
  refuse_for_all(store,
                 fmt::format("{} was claimed twice: by {} and by {}",
                             name_processes({world.process}, world.processes), first, name_of_pid(own)));
}

std::vector<std::string> roll_keys(const World& world) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(world.processes));
  for (int process = 0; process < world.processes; ++process) keys.push_back(roll_key(process));
  return keys;
}

void wait_for_all(const ProcessStore& store, const World& world, milliseconds timeout) {
  const auto end = RollClock::now() + timeout;
  while (!store.wait(roll_keys(world), kLook)) {
    if (store.has({kRefused})) refuse_roll(store, store.get({kRefused}).front());
    if (RollClock::now() < end) continue;
    const auto missing = store.missing(roll_keys(world));
    if (missing.empty()) return;
    throw DeviceError(fmt::format("{} did not come to {} within {}", name_processes(missing, world.processes),
                                  store.place(), in_seconds(timeout)),
                      "start all processes at about the same time, and see their messages");
  }
}

}  // namespace

Presence own_presence(const World& world) {
  return {.host = own_host_name(),
          .machine = machine_name() + " " + network_namespace(),
          .pid = ::getpid(),
          .address = address_towards(world.master_host, world.master_port),
          .cores = allowed_cores()};
}

std::vector<Presence> call_roll(const ProcessStore& store, const World& world, const Presence& own,
                                milliseconds timeout) {
  agree_on_size(store, world, own);
  claim_place(store, world, own);
  wait_for_all(store, world, timeout);
  std::vector<Presence> all;
  for (const auto& text : store.get(roll_keys(world))) {
    all.push_back(parse_presence(store, static_cast<int>(all.size()), text));
  }
  return all;
}

void divide_cores(const World& world, const std::vector<Presence>& all) {
  std::vector<CoreUser> users;
  users.reserve(all.size());
  for (const auto& one : all) users.push_back({.machine = one.machine, .cores = one.cores});
  pin_to_share(users, static_cast<size_t>(world.process));
}

bool on_one_host(const std::vector<Presence>& all) {
  return std::all_of(all.begin(), all.end(),
                     [&](const Presence& one) { return one.machine == all.front().machine; });
}

void count_processes_on_host(World& world, const std::vector<Presence>& all) {
  if (world.processes_on_host != 0) return;
  const auto own = all.begin() + world.process;
  const auto on_this_host = [&](const Presence& one) { return one.machine == own->machine; };
  world.process_on_host = static_cast<int>(std::count_if(all.begin(), own, on_this_host));
  world.processes_on_host = static_cast<int>(std::count_if(all.begin(), all.end(), on_this_host));
}

std::string channel_address(const World& world, const std::vector<Presence>& all, const std::string& listen) {
  if (!listen.empty()) return listen;
  if (on_one_host(all)) return kLoopback;
  const auto& own = all[static_cast<size_t>(world.process)];
  auto address = own.address;
  for (const auto& other : all) {
    if (!address.empty() && !is_loopback(address)) break;
    if (other.machine != own.machine) address = address_towards(other.address, world.master_port);
  }
  if (!address.empty() && !is_loopback(address)) return address;
  throw DeviceError(fmt::format("process {} has no address that other hosts can reach: the way to {} is {}",
                                world.process, world.master_host, address.empty() ? "unknown" : address),
                    "give each process " + NamedOption{"listen", "ADDRESS", "an address to listen on"} +
                        ", which the others can reach");
}

}  // namespace lockstep
