// The chapter's five exercises and the two-layer network of its figure.
#pragma once

#include <lockstep/app/bench/overlap/queues/device.h>
#include <lockstep/app/bench/overlap/run.h>

namespace lockstep {

// Runs the plan's exercise: prints the question, the experiment, a table and the answer.
void run_exercise(OverlapRun& run);

// 1: do the independent operators of one `run` overlap?
void exercise_independent_operators(OverlapRun& run);
// 2: does it pay to run small operators side by side on one device?
void exercise_small_operators(OverlapRun& run);
// 3: can devices compute and copy at the same time? Also runs the two-layer network.
void exercise_all_at_once(OverlapRun& run);
// 4: does a trace show that copies run during matmuls?
void exercise_trace(OverlapRun& run);
// 5: are tasks that depend on each other right, and faster, on two devices?
void exercise_dependencies(OverlapRun& run);

// Trains a two-layer perceptron on the devices and the host, one task after another and by dependencies.
// Checks it against autograd on one device.
void run_two_layer_network(OverlapRun& run, OverlapDevices& devices);

}  // namespace lockstep
