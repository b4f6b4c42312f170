// The outputs of a model for many rows, computed on all devices of all processes at once. Trainer::predict()
// does it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns Model::output of the rows with these numbers, at least one, in their order: (rows, ...) on the
// host. A collective: every process calls it with the same rows, and gets the same result. models[i] (all
// with the same weights and statistics) and sources[i] are on workers.devices()[i], the device of the
// communicator's endpoint i. Modules are in evaluation mode meanwhile.
//
// Rows are computed in blocks as in evaluate(), which the ranks of the world take in rotation. After each
// rotation all ranks gather its blocks, so that a device holds the outputs of one block per rank. Throws
// UsageError for outputs that do not have one row per row, and where two blocks give rows of other shapes or
// dtypes; faults of the model as model_errors.h says; and the error that ended a collective.
torch::Tensor predict(std::span<const Model> models,
                      std::span<const std::shared_ptr<const BatchSource>> sources,
                      std::span<const int64_t> rows, Precision precision, ReplicaWorkers& workers,
                      Communicator& communicator);

}  // namespace lockstep
