// The costs of a model's step: memory, for the estimate of a plan, and arithmetic, for benchmarks; and its
// layers one by one, to time them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/models/factory.h>
#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>

namespace lockstep {

// Elements and operations are those of one row's forward and backward pass.
struct ModelCosts {
  // Elements held at most: those kept for the backward pass, and the gradients that exist at once where they
  // are largest.
  int64_t activations = 0;
  int64_t floats = 0;  // of these stay float under autocast to bfloat16
  // Bytes that lockstep's kernels hold beside the activations, whatever the number of rows.
  int64_t working_bytes = 0;
  // Floating point operations in convolutions and linear layers, computed directly. A multiplication and an
  // addition are two. The gradients of the weights take as many as the forward pass, and so do the gradients
  // of the inputs, which the first layer does not need.
  int64_t flops = 0;
};

// Returns the costs of such a model with a batch of such images on such a device, in a replica with this
// many threads. Throws UsageError for an unknown name.
ModelCosts costs_of(const ModelSpec& spec, torch::DeviceType device, int64_t threads = 1);

// Returns true if such a model computes in fp32 on such a device even under autocast to bfloat16: lockstep's
// kernels compute all its layers, faster in fp32 than torch's do in bfloat16. Throws UsageError for an
// unknown name.
bool stays_in_fp32(const ModelSpec& spec, torch::DeviceType device);

struct ModelLayer {
  std::string name;
  int64_t count = 1;           // layers of this kind and size in the network
  std::vector<int64_t> input;  // sizes of a row of X
  bool first = false;          // X is a batch of images and needs no gradient
  // How many of them take float X on a CPU though the network computes in bfloat16: the convolution before
  // them does not round its sums.
  int64_t unrounded = 0;
  // Floating point operations per row, computed directly; 0 for layers other than convolutions and linear
  // ones.
  int64_t forward_flops = 0, backward_flops = 0;
  // Returns the layer's output for X (n, input...), with the network's kernels; backward() adds to the
  // gradients of its parameters.
  std::function<torch::Tensor(const torch::Tensor& X)> forward;
};

// Returns the layers of such a model for such images, built anew on the host, each kind once. Empty
// for a model whose layers are not known one by one. Throws UsageError for an unknown name.
std::vector<ModelLayer> layers_of(const ModelSpec& spec);

// --- the models that factory.cpp lists

LeNetShape shape_of_lenet(const ModelSpec& spec);
ModelCosts lenet_costs(const ModelSpec& spec, torch::DeviceType device, int64_t threads);
std::vector<ModelLayer> lenet_layers(const ModelSpec& spec);

// For images of height x width. The additions of the shortcuts and the means over the images are no layers.
ModelCosts resnet18_costs(const ResNet18Options& options, torch::DeviceType device, int64_t threads = 1,
                          int64_t height = 28, int64_t width = 28);
std::vector<ModelLayer> resnet18_layers(const ResNet18Options& options, int64_t height = 28,
                                        int64_t width = 28);

}  // namespace lockstep
