// Models by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/initialize.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct ModelLayer;

struct ModelSpec {
  std::string name;      // one of model_names()
  int64_t channels = 1;  // of X
  int64_t classes = 10;
  uint64_t seed = 0;
  torch::ScalarType dtype = torch::kFloat32;
  std::optional<Initialization> initialization = {};  // default: the model's, see its header
  Kernels kernels = Kernels::kAuto;
};

// lenet, resnet18
std::vector<std::string> model_names();

// Returns a factory that builds the model anew in each call, with the same weights. Throws UsageError for a
// name that is not in model_names() and for options that the model does not take, DataError for channels and
// classes that do not fit a model of fixed size (lenet: 1 and 10).
ModelFactory make_model_factory(const ModelSpec& spec);

// How many elements the forward and backward pass of such a model hold at most, on such a device, per row of
// a batch X (n, 1, 28, 28). Throws UsageError for an unknown name.
int64_t activations_per_row(const ModelSpec& spec, torch::DeviceType device);

// How many of these elements stay float under autocast to bfloat16. Throws UsageError for an unknown name.
int64_t floats_per_row(const ModelSpec& spec, torch::DeviceType device);

// Bytes that lockstep's kernels hold beside the activations, whatever the number of rows, in a replica with
// this many threads. Throws UsageError for an unknown name.
int64_t working_bytes(const ModelSpec& spec, torch::DeviceType device, int64_t threads);

// Whether such a model computes in fp32 on such a device even under autocast to bfloat16: lockstep's kernels
// compute all its layers, faster in fp32 than torch's do in bfloat16. Throws UsageError for an unknown name.
bool stays_in_fp32(const ModelSpec& spec, torch::DeviceType device);

// Returns the layers of such a model for rows of (1, 28, 28), built anew on the host. Throws UsageError for
// an unknown name.
std::vector<ModelLayer> layers_of(const ModelSpec& spec);

// Floating point operations of one row's forward and backward pass in convolutions and linear layers,
// computed directly. A multiplication and an addition are two. The gradients of the weights take as many as
// the forward pass, and so do the gradients of the inputs, which the first layer does not need. Throws
// UsageError for an unknown name.
int64_t training_flops_per_row(const std::string& name);

}  // namespace lockstep
