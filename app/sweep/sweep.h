// lockstep sweep: trains over a grid of device lists, batch sizes, learning rates and epochs.
#pragma once

#include <lockstep/app/sweep/options.h>

namespace CLI {
class App;
}

namespace lockstep {

void setup_sweep(CLI::App& app);
void run_sweep(const SweepOptions& options);

}  // namespace lockstep
