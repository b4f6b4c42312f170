// Evaluates a whole data set on all devices of all processes at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/evaluation.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Rows that a replica evaluates at once.
inline constexpr int64_t kEvaluationBlock = 256;

// Cuts the set into blocks of kEvaluationBlock rows, which the ranks of the world take in rotation, and adds
// the blocks' sums in order: the counts are exactly the same on any number of devices and processes. A
// collective: every process calls it, and gets the same result. models[i] (all with the same weights and
// statistics) and sources[i] are on workers.devices()[i], the device of the communicator's endpoint i; every
// source holds the whole set. Modules are in evaluation mode meanwhile, and in training mode afterwards.
// Throws UsageError when the set is empty, what `progress` throws, PeerError when another process has
// stopped, and the error that ended a collective. `progress` may be empty.
Evaluation evaluate(std::span<const Model> models,
                    std::span<const std::shared_ptr<const BatchSource>> sources, Precision precision,
                    ReplicaWorkers& workers, Communicator& communicator,
                    const EvaluationProgress& progress = {});

// Returns one source per replica. Calls the factory once per distinct device. Throws UsageError if it
// returns null.
std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory);

}  // namespace lockstep
