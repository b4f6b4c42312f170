// Weights of a model in a safetensors file whose metadata names the model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Throws OutputError. Weights that cannot be written there (a file has appeared meanwhile) are written beside
// it under another name, or else in the folder for temporary files, and the error says where.
void save_weights(std::vector<NamedTensor> weights, const std::string& model, const std::string& path,
                  bool overwrite);

struct WeightsFile {
  std::string model;  // one of model_names()
  std::vector<NamedTensor> weights;
};

// The model is the one that `model` names, else the one that the file's metadata names. Throws WeightsError
// when the file is missing or damaged, names no model and none is given, or names another one than is given.
WeightsFile load_weights(const std::string& path, const std::optional<std::string>& model);

}  // namespace lockstep
