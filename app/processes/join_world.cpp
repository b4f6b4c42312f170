#include <lockstep/app/processes/join_world.h>

#include <lockstep/app/processes/together.h>
#include <lockstep/parallel/processes.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {

void in_joined_world(const ProcessFlags& flags, const std::function<void(TrainWorld& world)>& action) {
  TrainWorld world{.place = find_world(flags.world)};
  as_process(world, [&] {
    world.connection = join_processes(world.place, join_options(flags));
    if (world.connection) world.place = world.connection->world();
    action(world);
  });
}

}  // namespace lockstep
