// The environment of a launched process: torchrun's variables, so that what runs under torchrun runs here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// The values of a launched process's variables.
struct LaunchVariables {
  int process = 0;
  int processes = 1;
  std::string host = {};  // of the store, which the launcher serves
  uint16_t port = 0;
  std::string run = {};    // name of the launch, the same after a restart
  std::string token = {};  // known to the processes of this launch only
  int restart = 0;         // how often they have been started again
  int max_restarts = 0;
};

// This process's environment, NAME=value, with these variables in place of any of their names.
std::vector<std::string> environment_with(const LaunchVariables& variables);

// Random bytes of the kernel, two hexadecimal digits each. At most 256.
std::string random_hex(size_t bytes);

}  // namespace lockstep
