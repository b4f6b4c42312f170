// Network-wise: consecutive layers on each device, which hands what they make to the next one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <lockstep/app/bench/partition/scheme.h>

namespace lockstep {

// Device i runs layers [starts[i], starts[i+1]) (balanced_stages()). The batch goes through in so many
// micro-batches: all forward passes, device i working on one while device i + 1 has the one before, then all
// backward passes (GPipe: Y. Huang et al., NeurIPS 2019). With one, a single device works at a time. Throws
// UsageError when there are more micro-batches than rows.
std::unique_ptr<PartitionWay> network_wise(Mesh& mesh, const PartitionTask& task, std::vector<size_t> starts,
                                           int micro_batches);

// Seconds that the mesh's first device takes for the forward and backward pass of each layer on the whole
// batch: the median of a few.
std::vector<double> layer_seconds(Mesh& mesh, const PartitionTask& task);

}  // namespace lockstep
