// Outcomes of a model as one tensor of doubles per replica, which is summed on the device.
#pragma once

#include <torch/types.h>

#include <lockstep/support/row_sums.h>
#include <lockstep/support/types.h>

namespace lockstep {

// How many numbers an outcome of this model has: its loss; of each metric the sum and, if it has its own, the
// weight; and the weight of the loss, if the model has one.
int64_t sum_count(const Model& model);

// These numbers of one outcome, (sum_count) float64 on its device, detached. weight: of the loss, () float64;
// undefined if the model has none.
torch::Tensor sums_of(const Outcome& outcome, const torch::Tensor& weight = {});

// Adds these numbers on a GPU, by one kernel, to `sums`, (sum_count + 1) float64. Their last one becomes the
// number of this step, () float64, if the loss is NaN or infinite, and that is smaller. Returns false if it
// cannot: on a CPU, or for more than 32 numbers.
bool add_on_gpu(const Outcome& outcome, const torch::Tensor& weight, const torch::Tensor& step,
                const torch::Tensor& sums);

// Adds the numbers of some outcomes, which lie on the host from `sums` on, to those of other rows. into:
// zero_sums() of the model's metrics, or what has been added to it. The rows are the caller's.
void add_sums(const Model& model, const double* sums, RowSums& into);

}  // namespace lockstep
