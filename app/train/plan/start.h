// The start of a run beside its seed: weights of a file, and parameters that stay as they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The weights of --init-from and what became of them. Names are those of parameters and buffers.
struct StartWeights {
  std::string file;
  std::string sha256;                         // of the tensors that were taken
  std::vector<NamedTensor> tensors = {};      // those
  std::vector<std::string> other_shape = {};  // "fc.weight [10, 512], in the file [100, 512]"
  std::vector<std::string> missing = {};      // parameters and buffers that the file does not have
  std::vector<std::string> unused = {};       // tensors of the file that the model does not have
  std::optional<NetworkFacts> facts = {};     // of the network that the weights are of
};

// Reads the safetensors file, of lockstep or of Python. Throws WeightsError if it is missing or damaged, or
// if nothing in it has the name and shape of a parameter or buffer of the module.
StartWeights read_start(const std::string& file, torch::nn::Module& module);

// "62 of 64 tensors of w.safetensors; not fc.weight [10, 512], in the file [100, 512]; ...", with a few names
// of each kind.
std::string start_text(const StartWeights& start);

// Returns a sentence for weights that have learnt from pixels of another range, without a full stop; nothing
// if the ranges are the same, or that of the weights is not known.
std::optional<std::string> pixels_notice(const StartWeights& start, const NetworkFacts& own);

// Returns the names of the parameters that comma-separated patterns of names match: * for any characters, ?
// for one, [ab] for one of these. Throws UsageError for a pattern that matches nothing, with the nearest
// name, and if no parameter is left.
std::vector<std::string> frozen_names(const std::string& patterns, torch::nn::Module& module);

// Models of the factory that start from these tensors, and do not train the parameters of these names.
ModelFactory with_start(ModelFactory factory, std::vector<NamedTensor> tensors,
                        std::vector<std::string> frozen);

}  // namespace lockstep
