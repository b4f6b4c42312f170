// The flags that say which processes train together, and how they meet.
#pragma once

#include <string>

#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/world/world.h>

namespace CLI {
class App;
}

namespace lockstep {

struct ProcessFlags {
  GivenWorld world = {};
  int timeout = 300;  // seconds
  std::string listen = {};
};

// --rank, --world-size, --master, --timeout, --listen
void add_process_flags(CLI::App& command, ProcessFlags& options);

JoinOptions join_options(const ProcessFlags& flags);

}  // namespace lockstep
