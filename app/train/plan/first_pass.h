// A plan's model computes once: its kernels and libraries are resident from then on, so that the memory of a
// run can be estimated, and what does not fit is found before the run begins.
#pragma once

#include <cstdint>

#include <lockstep/app/train/plan/train_plan.h>
#include <lockstep/models/program.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Runs a forward and a backward pass of two rows of zeros.
void touch_kernels(const TrainPlan& plan, const Model& model);

// Two rows, or the number next to it that the program takes.
int64_t rows_to_try(const Program::Rows& allowed);

// The bytes that a step holds at most, beside the weights and their gradients.
struct StepBytes {
  int64_t per_row = 1;
  int64_t fixed = 0;  // whatever its rows: what lockstep's kernels hold of the weights
};

// Runs a program's step and evaluation with the first rows of the data. Changes `model`, which is thrown
// away. Returns what the step held. Throws
// what the program and its loss throw for such rows: DataError for shapes and dtypes that do not fit; and
// UsageError for a loss that does not depend on each parameter that trains.
StepBytes try_program(const TrainPlan& plan, const Model& model);

}  // namespace lockstep
