// The link that `bench scaling --predict` assumes where none is given: measured.
#pragma once

#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

// Measures how long sums of the plan's gradients take between two devices of its kind (one or two GPUs, or
// CPUs), with the plan's algorithm.
Link measure_link(const TrainPlan& plan);

// Measures sums of the plan's gradients between all processes of its world. Each process calls it. If all are
// on one machine and compute on CPUs, sums do not overlap with computing.
Link measure_process_link(const TrainPlan& plan);

}  // namespace lockstep
