// The experiments and exercises of `bench overlap`. Each measures, prints a table and reports findings.
#pragma once

#include <optional>
#include <string>

#include <lockstep/app/bench/overlap/queues/copy.h>
#include <lockstep/app/bench/overlap/run.h>

namespace lockstep {

// Compares the matmuls of each device alone with all devices at once.
void compare_devices(OverlapRun& run, const OverlapDevices& devices);
// Copies results from the first device to the second, and back.
void compare_links(OverlapRun& run, const OverlapDevices& devices);
// The first device computes and copies its results to the host.
void compare_copies(OverlapRun& run, const OverlapDevices& devices);
// All devices compute and copy their results to the host. Returns the hidden part of the overlapped way.
std::optional<double> compare_all_at_once(OverlapRun& run, const OverlapDevices& devices);
// Trains a two-layer perceptron on the devices and the host, one task after another and by dependencies.
// Checks it against autograd on one device.
void run_two_layer_network(OverlapRun& run, const OverlapDevices& devices);

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

// Puts a hidden part into words. Values below 0 or above 1 mean that times scatter, or that copies delay the
// matmuls.
std::string reach_of(double hidden);

// Explains in `#` lines how these devices copy.
void explain_copies(OverlapRun& run, const OverlapDevices& devices, int times);

}  // namespace lockstep
