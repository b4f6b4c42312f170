// Joining the world of a command that runs in several processes.
#pragma once

#include <functional>
#include <string>

#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/processes/train_world.h>

namespace lockstep {

// Finds the world that the flags or a launcher name, connects its processes, and runs `action` in it. Throws
// as find_world() does; then, as as_process() does, what join_process_group() and the action throw.
//
// With several processes, from joining on, an InterruptGuard only notes the first SIGINT, SIGTERM or SIGHUP.
// awaited: for its message.
void in_joined_world(const ProcessFlags& flags, const std::string& awaited,
                     const std::function<void(TrainWorld& world)>& action);

}  // namespace lockstep
