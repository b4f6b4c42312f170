// The weights of a model in a safetensors file. The file's metadata names the model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The name of every exported program where models have one: in plans, checkpoints and the metadata of
// weights.
inline constexpr const char* kProgramModel = "program";

// Throws OutputError. If the weights cannot be written to `path` (for example because a file has appeared
// there meanwhile), they are written under another name beside it or in the folder for temporary files, and
// the error says where.
// facts: what the network was trained on, for the file's metadata.
void save_weights(std::vector<NamedTensor> weights, const std::string& model, const std::string& path,
                  bool overwrite, const std::optional<NetworkFacts>& facts = {});

struct WeightsFile {
  std::string model;  // one of model_names()
  std::vector<NamedTensor> weights;
  std::optional<NetworkFacts> facts = {};  // nothing in files of Python and of earlier versions
};

// Reads the file. `model`: needed only if the file does not name its model. Throws WeightsError if the file
// is missing or damaged, if no model is named, or if `model` and the file name different models.
WeightsFile load_weights(const std::string& path, const std::optional<std::string>& model);

// Reads weights of an exported program, which Python or lockstep has written. Throws WeightsError as above,
// and if the file names a model of lockstep.
WeightsFile load_weights_of_program(const std::string& path);

// Reads the tensors of whatever model, which the result does not name. Throws WeightsError if the file is
// missing or damaged.
WeightsFile load_any_weights(const std::string& path);

// The same for weights that have been read from `path`. named: the model in their metadata, if there is one.
WeightsFile as_weights_of(const std::string& path, std::vector<NamedTensor> weights,
                          const std::optional<std::string>& named, const std::optional<std::string>& model);

}  // namespace lockstep
