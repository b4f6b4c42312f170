// The costs of a model's step: memory, for the estimate of a plan, and operations, for benchmarks.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include <lockstep/models/factory.h>
#include <lockstep/models/resnet18.h>

namespace lockstep {

// How many elements the forward and backward pass of such a model hold at most, on such a device, per row of
// a batch X (n, 1, 28, 28). Throws UsageError for an unknown name.
int64_t activations_per_row(const ModelSpec& spec, torch::DeviceType device);

// How many of these elements stay float under autocast to bfloat16. Throws UsageError for an unknown name.
int64_t floats_per_row(const ModelSpec& spec, torch::DeviceType device);

// Bytes that lockstep's kernels hold beside the activations, whatever the number of rows, in a replica with
// this many threads. Throws UsageError for an unknown name.
int64_t working_bytes(const ModelSpec& spec, torch::DeviceType device, int64_t threads);

// Returns true if such a model computes in fp32 on such a device even under autocast to bfloat16: lockstep's
// kernels compute all its layers, faster in fp32 than torch's do in bfloat16. Throws UsageError for an
// unknown name.
bool stays_in_fp32(const ModelSpec& spec, torch::DeviceType device);

// Floating point operations of one row's forward and backward pass in convolutions and linear layers,
// computed directly. A multiplication and an addition are two. The gradients of the weights take as many as
// the forward pass, and so do the gradients of the inputs, which the first layer does not need. Throws
// UsageError for an unknown name.
int64_t training_flops_per_row(const std::string& name);

// --- LeNet

// How many elements the forward and backward pass hold per row of a batch: those kept for the backward pass,
// and the gradients that exist at once where they are largest. lockstep_kernels: see
// lenet_has_lockstep_kernels().
int64_t lenet_activations_per_row(bool lockstep_kernels);

// Bytes that lockstep's kernels hold beside them, whatever the number of rows, with this many threads.
int64_t lenet_working_bytes(int64_t threads);

// As training_flops_per_row().
int64_t lenet_training_flops_per_row();

// --- ResNet-18

// How many elements the forward and backward pass hold per row of a batch X (n, channels, height, width):
// those that the layers keep for the backward pass, and the gradients that exist at once in it.
int64_t resnet18_activations_per_row(const ResNet18Options& options = {}, int64_t height = 28,
                                     int64_t width = 28);

// How many of these elements stay float under autocast to bfloat16: convolution sums that a batch
// normalisation takes unrounded.
int64_t resnet18_floats_per_row(const ResNet18Options& options, torch::DeviceType device, int64_t height = 28,
                                int64_t width = 28);

// Bytes that lockstep's kernels hold at once beside them, whatever the number of rows, with this many
// threads; see working_bytes().
int64_t resnet18_working_bytes(const ResNet18Options& options, torch::DeviceType device, int64_t threads);

// As training_flops_per_row(), for images of height x width.
int64_t resnet18_training_flops_per_row(const ResNet18Options& options = {}, int64_t height = 28,
                                        int64_t width = 28);

}  // namespace lockstep
