// Layer-wise: every layer's channels or units shared out over all devices.
#pragma once

#include <memory>

#include <lockstep/app/bench/partition/scheme.h>

namespace lockstep {

// Each device computes its channels of a convolution or units of a linear layer, with the ReLU and the
// pooling behind it; then all gather the whole output, which the next layer needs. Backward, each device has
// a part of the gradient of a layer's whole input: of their sum it takes the channels that it has made. The
// loss is computed by every device. Throws UsageError when a layer has fewer channels or units than there are
// devices.
std::unique_ptr<PartitionWay> layer_wise(Mesh& mesh, const PartitionTask& task);

}  // namespace lockstep
