// Makes a figure from files of one kind. Each function throws DataError if a file holds nothing to draw, and
// nlohmann's exceptions if a value is of the wrong type. Values that were not measured (null) are left out.
#pragma once

#include <span>
#include <vector>

#include <lockstep/app/plot/figures/source.h>
#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

// Names the sources and makes the figure of their kind. At least one source. Throws UsageError if the kinds
// differ, DataError also for values of the wrong type.
Figure figure_of(std::vector<Source> sources);

// Accuracy and loss against the epoch, in two panels. One line per run; values measured while training are
// pale.
Figure training_figure(std::span<const Source> metrics);

// Bus bandwidth against size, on logarithmic axes. One line per list of devices and algorithm.
Figure allreduce_figure(std::span<const Source> benches);

// Speed-up against replicas, strong and weak, with the ideal, on logarithmic axes and with the efficiency at
// each point. Predictions are dashed and hollow.
Figure scaling_figure(std::span<const Source> benches);

// The timeline of every track: one panel per experiment, all on the same time scale.
Figure overlap_figure(std::span<const Source> benches);

// Test accuracy against learning rate (logarithmic). One line per devices, batch size and epochs.
Figure sweep_figure(std::span<const Source> sweeps);

// The classes of the rows against the answers: a matrix per test, each cell as dark as its share of its
// class. With the counts where they fit. Throws DataError unless there is a count for each pair of classes.
Figure confusion_figure(std::span<const Source> tests);

}  // namespace lockstep::plot
