// The cells of a sweep.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/sweep/cell.h>
#include <lockstep/app/sweep/options.h>

namespace lockstep {

// Returns every combination of the axes once: device lists outermost, then batch sizes, learning rates and
// epochs, in the given order. Throws what parsing a device list throws, and UsageError if an axis has a value
// twice.
std::vector<SweepCell> make_grid(const SweepOptions& options);

// "6 cells: 2 device lists x 3 learning rates". Axes with one value are left out.
std::string grid_text(const SweepOptions& options);

// The flags of `train` for this cell.
TrainFlags train_options(const SweepOptions& options, const SweepCell& cell);

}  // namespace lockstep
