// Pipeline parallel (the chapter's network-wise): each device runs consecutive layers and sends their output
// to the next device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <lockstep/app/bench/partition/scheme.h>

namespace lockstep {

// Device i runs layers [starts[i], starts[i+1]); see balanced_stages(). The batch is cut into micro-batches.
// All forward passes come first: device i works on one micro-batch while device i + 1 works on the one
// before. Then come all backward passes (GPipe: Y. Huang et al., NeurIPS 2019). With one micro-batch, one
// device works at a time. Throws UsageError if there are more micro-batches than rows.
std::unique_ptr<PartitionScheme> pipeline_parallel(Mesh& mesh, const PartitionTask& task,
                                                   std::vector<size_t> starts, int micro_batches);

// Returns, for each layer, the seconds of its forward and backward pass on the whole batch on the mesh's
// first device (medians).
std::vector<double> layer_seconds(Mesh& mesh, const PartitionTask& task);

}  // namespace lockstep
