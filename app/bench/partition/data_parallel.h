// Data-wise: the whole network on every device, each with its share of the rows; what lockstep does.
#pragma once

#include <memory>

#include <lockstep/app/bench/partition/scheme.h>

namespace lockstep {

// With the library's own split_batch() and GradientSync, overlapped. Its sums are made in place, so that
// nobody sees single copies: each sum that is posted counts as one meeting and as the 2 (n-1) S bytes that
// root, two_shot and ring all move for n devices and S bytes (NCCL may choose otherwise). A device that gets
// no rows runs no layers.
std::unique_ptr<PartitionWay> data_wise(Mesh& mesh, const PartitionTask& task);

}  // namespace lockstep
