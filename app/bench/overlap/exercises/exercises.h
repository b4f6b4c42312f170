// The chapter's five exercises, in its order, and the two-layer network that it draws.
#pragma once

#include <lockstep/app/bench/overlap/device.h>
#include <lockstep/app/bench/overlap/run.h>

namespace lockstep {

// The plan's exercise: question, experiment, table, answer.
void run_exercise(OverlapRun& run);

// 1: do independent operators of one `run` overlap?
void exercise_independent_operators(OverlapRun& run);
// 2: does running small operators side by side pay on a single device?
void exercise_small_operators(OverlapRun& run);
// 3: computing on all devices, copies and the host at once; the two-layer network.
void exercise_all_at_once(OverlapRun& run);
// 4: a trace shows whether it is so.
void exercise_trace(OverlapRun& run);
// 5: a task with joins and reuse.
void exercise_dependencies(OverlapRun& run);

// A training step of a perceptron with two layers on the devices and the host, one task after another and by
// dependencies; checked against autograd on one device.
void run_two_layer_network(OverlapRun& run, OverlapDevices& devices);

}  // namespace lockstep
