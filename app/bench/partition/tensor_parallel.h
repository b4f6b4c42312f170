// Tensor parallel (the chapter's layer-wise): every layer's channels or units are shared out over all
// devices.
#pragma once

#include <memory>

#include <lockstep/app/bench/partition/scheme.h>

namespace lockstep {

// Forward, each device computes its channels of a convolution or its units of a linear layer, and the ReLU
// and pooling that follow. Then all devices gather the whole output, which the next layer needs. Backward,
// each device computes a partial gradient of the layer's whole input; these are summed, and each device takes
// the channels that it computed. Every device computes the loss. Throws UsageError if a layer has fewer
// channels or units than there are devices.
std::unique_ptr<PartitionScheme> tensor_parallel(Mesh& mesh, const PartitionTask& task);

}  // namespace lockstep
