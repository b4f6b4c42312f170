// Data parallel (the chapter's data-wise): every device holds the whole network and computes its share of the
// rows. This is what lockstep does.
#pragma once

#include <memory>

#include <lockstep/app/bench/partition/scheme.h>

namespace lockstep {

// Uses the library's split_batch() and GradientSync, with sums overlapped. Single copies within a sum cannot
// be observed, so each sum counts as one synchronisation and as the 2 (n-1) S bytes that root, two_shot and
// ring move for n devices and S bytes. NCCL may move another number. A device without rows runs no layers.
std::unique_ptr<PartitionScheme> data_parallel(Mesh& mesh, const PartitionTask& task);

}  // namespace lockstep
