// Faults of a user's own model and data, as errors of lockstep that say on which replica and when.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Call it in a handler: throws the exception that is handled, with its place, such as "rank 1 (cuda:0): in
// the forward pass of step 3". A DataError gets the place before its text. Another error of lockstep stays as
// it is, and so do those that the program or the system explains: out of memory, no more threads, a fault of
// a GPU. All others are thrown as FailedError, with the exception itself nested (std::rethrow_if_nested).
[[noreturn]] void rethrow_at(const std::string& place);

// Throws UsageError, with its place, for a batch that is not what the source has said, or not as many rows as
// it was asked for: the loss would be divided by a wrong number.
void require_rows(const Batch& batch, const BatchSpec& spec, int64_t rows,
                  const std::function<std::string()>& place);

// Throws UsageError unless the training set and another one give the same tensors: one model takes both.
// name: "the test set".
void require_alike(const BatchSpec& training, const BatchSpec& other, const std::string& name);

// Throws UsageError, with its place, for an outcome that does not have what types.h says: numbers on this
// device, the metrics that the model declares and, if the model trains, a loss that requires a gradient.
// Looks at no values: a GPU is not waited for.
void require_usable(const Outcome& outcome, const std::vector<MetricKind>& metrics, torch::Device device,
                    bool trains, const std::function<std::string()>& place);

// The same for outputs of these rows, which have the rows as their first dimension.
void require_usable_output(const torch::Tensor& outputs, int64_t rows, torch::Device device,
                           const std::function<std::string()>& place);

// The same for the weight of a batch's rows.
void require_usable_weight(const torch::Tensor& weight, torch::Device device,
                           const std::function<std::string()>& place);

}  // namespace lockstep
