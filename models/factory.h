// Models by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/initialize.h>
#include <lockstep/models/model_layer.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct ModelSpec {
  std::string name;      // one of model_names()
  int64_t channels = 1;  // of X
  int64_t classes = 10;
  uint64_t seed = 0;
  torch::ScalarType dtype = torch::kFloat32;
  std::optional<Initialization> initialization = {};  // the model's own (see its header) unless given
  Kernels kernels = Kernels::kAuto;
};

// lenet, resnet18
std::vector<std::string> model_names();

// Each call of the factory builds the model anew, with the same weights. Throws UsageError for a name that is
// not among model_names() and for what the model cannot be given, DataError for channels and classes that do
// not fit a model of fixed size (lenet: 1 and 10).
ModelFactory make_model_factory(const ModelSpec& spec);

// Elements that one row of a batch, X (1, 1, 28, 28), makes the forward and backward pass of such a model
// hold at most on such a device. Throws UsageError for an unknown name.
int64_t activations_per_row(const ModelSpec& spec, torch::DeviceType device);

// Those of them that are float under autocast to bfloat16, too. Throws UsageError for an unknown name.
int64_t floats_per_row(const ModelSpec& spec, torch::DeviceType device);

// Bytes that such a model's kernels hold beside, whatever the rows, in a replica with so many threads. Throws
// UsageError for an unknown name.
int64_t working_bytes(const ModelSpec& spec, torch::DeviceType device, int64_t threads);

// Whether such a model computes in fp32 on such a device under autocast to bfloat16 too: all its layers are
// computed by kernels of ours, which are faster in fp32 than torch's in bfloat16. Throws UsageError for an
// unknown name.
bool stays_in_fp32(const ModelSpec& spec, torch::DeviceType device);

// The layers of such a model for rows of (1, 28, 28), built anew on the host. Throws UsageError for an
// unknown name.
std::vector<ModelLayer> layers_of(const ModelSpec& spec);

// Floating point operations (a multiplication and an addition are two) that one row's forward and backward
// pass takes in convolutions and linear layers, computed directly: the forward products, as many for the
// gradients of weights and again for those of inputs, which the first layer does not need. Throws UsageError
// for an unknown name.
int64_t training_flops_per_row(const std::string& name);

}  // namespace lockstep
