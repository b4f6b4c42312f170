// The cells of a sweep.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/sweep/cell.h>
#include <lockstep/app/sweep/options.h>

namespace lockstep {

// Every combination of the axes, each cell once: device lists outermost, then batch sizes, learning rates and
// epochs, all in the order given. Throws what parsing a device list throws, and UsageError where an axis
// names a value twice.
std::vector<SweepCell> make_grid(const SweepOptions& options);

// "6 cells: 2 device lists x 3 learning rates". Axes of one value are left out.
std::string grid_text(const SweepOptions& options);

// What `train` would be asked for this cell alone.
TrainFlags train_options(const SweepOptions& options, const SweepCell& cell);

}  // namespace lockstep
