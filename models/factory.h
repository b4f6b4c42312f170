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

struct ModelSpec {
  std::string name;      // one of model_names()
  int64_t channels = 1;  // of X
  int64_t classes = 10;
  uint64_t seed = 0;
  torch::ScalarType dtype = torch::kFloat32;
  std::optional<Initialization> initialization = {};  // the model's own (see its header) unless given
  Kernels kernels = Kernels::kAuto;                   // lenet has but torch's
};

// lenet, resnet18
std::vector<std::string> model_names();

// Each call of the factory builds the model anew, with the same weights. Throws UsageError for a name that is
// not among model_names() and for what the model cannot be given, DataError for channels and classes that do
// not fit a model of fixed size (lenet: 1 and 10).
ModelFactory make_model_factory(const ModelSpec& spec);

// Elements that one row of a batch, X (1, 1, 28, 28), makes the forward and backward pass of the named model
// hold at most. Throws UsageError for an unknown name.
int64_t activations_per_row(const std::string& name);

// Floating point operations (a multiplication and an addition are two) that one row's forward and backward
// pass takes in convolutions and linear layers, computed directly: the forward products, as many for the
// gradients of weights and again for those of inputs, which the first layer does not need. Throws UsageError
// for an unknown name.
int64_t training_flops_per_row(const std::string& name);

}  // namespace lockstep
