#include <lockstep/app/processes/join_world.h>

#include <optional>

#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {

void in_joined_world(const ProcessFlags& flags, const std::string& awaited,
                     const std::function<void(TrainWorld& world)>& action) {
  TrainWorld world{.place = find_world(flags.world)};
  // When a process fails its launcher may send SIGTERM to the others at once. They still find out and say
  // which one it was.
  std::optional<InterruptGuard> until_explained;
  as_process(world, [&] {
    world.process_group = join_process_group(world.place, join_options(flags));
    if (world.process_group) {
      world.place = world.process_group->world();
      until_explained.emplace(awaited);
    }
    action(world);
  });
}

}  // namespace lockstep
