// From files of one kind to the figure that shows them. Each throws DataError where the files hold nothing to
// draw, and lets nlohmann's exceptions pass where a value is of the wrong type. Values that were not measured
// (null) are left out.
#pragma once

#include <span>
#include <vector>

#include <lockstep/app/plot/figure.h>
#include <lockstep/app/plot/source.h>

namespace lockstep::plot {

// Of the sources' kind, which is the same for all; at least one source. It names them, too. Throws DataError
// also for values of the wrong type.
Figure figure_of(std::vector<Source> sources);

// Two panels against the epoch: accuracy and loss. A line a run; what was measured while training is pale.
Figure training_figure(std::span<const Source> metrics);

// Bus bandwidth against size, both as logarithms. A line for each list of devices and algorithm.
Figure allreduce_figure(std::span<const Source> benches);

// Speed-up against replicas beside the ideal, both as logarithms, with the efficiency at each point; strong
// and weak; what was predicted is dashed and hollow.
Figure scaling_figure(std::span<const Source> benches);

// What each track did when: one panel an experiment, all on the same scale of time.
Figure overlap_figure(std::span<const Source> benches);

// Test accuracy against learning rate (a logarithm). A line for each devices, batch size and epochs.
Figure sweep_figure(std::span<const Source> sweeps);

}  // namespace lockstep::plot
