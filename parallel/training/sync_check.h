// The check that the replicas of the world still have the same weights.
//
// After every step they have, bit by bit, on all devices of one type. They lose that if a device or its
// memory fails, or if code changes the weights of one replica. Then they train different models without a
// sign of it. Trainer::check_sync() compares them: each replica hashes its tensors, all gather the hashes of
// all.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns what is the same on every replica between two steps, in the module's order: all parameters, also
// those that are not trained. With batch_norms also the running averages and counters of its batch norms,
// which only invariant training and BnPolicy::kSync keep alike. Buffers of other modules are the module's own
// affair.
std::vector<NamedTensor> replicated_tensors(const torch::nn::Module& module, bool batch_norms);

// Returns a hash of the tensor's elements, in order and bit by bit: 0.0 and -0.0 differ, as do two kinds of
// NaN. Strides do not matter. Takes any dtype. A tensor on a GPU is copied to the host, for which it waits.
int64_t hash_of_bits(const torch::Tensor& tensor);

// Returns what a replica tells the others, (3 + tensors) int64 on its device: where it is, and its hashes.
torch::Tensor sync_report(std::span<const NamedTensor> tensors, torch::Device device, int process);

// reports: those of all ranks, (world, 3 + tensors) on the host. tensors: of any replica, for their names.
// Throws OutOfSyncError for the first tensor that is not the same on all replicas of one device type. The
// error names the ranks that differ from most of them; where there is no majority, from the lowest rank.
void require_equal_reports(const torch::Tensor& reports, std::span<const NamedTensor> tensors,
                           int64_t steps_taken);

}  // namespace lockstep
