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
  std::optional<Initialization> initialization = {};  // default: the model's, see its header
  Kernels kernels = Kernels::kAuto;
  int64_t height = 28, width = 28;         // of X
  double label_smoothing = 0;              // these two: of classification() (support/losses.h)
  std::vector<double> class_weights = {};  // empty: none
};

// Returns why torch's kernels compute such a model although spec.kernels allows lockstep's, for people: its
// images or classes are others than theirs. Empty: lockstep's do, where they support device and dtype.
std::string kernels_note(const ModelSpec& spec);

// lenet, resnet18
std::vector<std::string> model_names();

// Returns a factory that builds the model anew in each call, with the same weights. Throws UsageError for a
// name that is not in model_names() and for options that the model does not take, DataError for sizes
// that a model does not take (lenet: images with a side below 14 pixels).
ModelFactory make_model_factory(const ModelSpec& spec);

}  // namespace lockstep
