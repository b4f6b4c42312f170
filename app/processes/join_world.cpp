#include <lockstep/app/processes/join_world.h>

#include <fmt/format.h>

#include <optional>

#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {
namespace {

// Process 0 listens on all interfaces and needs no name, but nobody finds it by one that is misspelt.
void warn_of_unknown_master(const World& place) {
  const bool by_name = !place.store_runs && place.processes_on_host != place.processes;
  if (place.process != 0 || !by_name || host_resolves(place.master_host)) return;
  warn(fmt::format("the master's name '{}' does not resolve on this host", place.master_host));
}

// Before any work is done: the channels between the processes are opened later.
void need_listening_address(const TrainWorld& world, const std::string& listen) {
  together(world, [&] {
    if (!listen.empty()) listen_on(listen, 0);
    return nlohmann::ordered_json();
  });
}

}  // namespace

void in_joined_world(const ProcessFlags& flags, const std::string& awaited,
                     const std::function<void(TrainWorld& world)>& action) {
  TrainWorld world{.place = find_world(flags.world)};
  // When a process fails its launcher may send SIGTERM to the others at once. They still find out and say
  // which one it was.
  std::optional<InterruptGuard> until_explained;
  as_process(world, [&] {
    warn_of_unknown_master(world.place);
    world.process_group = join_process_group(world.place, join_options(flags));
    if (world.process_group) {
      world.place = world.process_group->world();
      until_explained.emplace(awaited);
      need_listening_address(world, flags.listen);
    }
    action(world);
  });
}

}  // namespace lockstep
