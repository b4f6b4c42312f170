// Weights that a command works with: of a run, of a file or of an exported program.
#pragma once

#include <torch/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/train/checkpoint/run_config.h>
#include <lockstep/app/train/checkpoint/run_program.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/losses.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct WeightsOptions {
  std::optional<std::string> run = {};      // its folder, or that of a checkpoint
  std::optional<std::string> weights = {};  // instead: a safetensors file
  std::optional<std::string> model = {};    // default: the model that the file names
  std::optional<std::string> program = {};  // instead: an exported program's file
  std::optional<LossChoice> loss = {};      // of the program; default: the run's, else classification
};

struct NamedWeights {
  std::string path;
  WeightsFile file;
  RunData run = {};                        // nothing for a file
  RunProgram program = {};                 // null for a model of lockstep
  bool pythons = false;                    // their names are those of Python's state_dict()
  ClassificationOptions loss = {};         // as the run has trained with it
  std::optional<NetworkFacts> facts = {};  // of runs and files that earlier versions wrote: nothing
};

// Reads the weights of a run as they were tested, or those of a file. Throws UsageError for options that name
// none or two, and what reading them throws.
NamedWeights named_weights(const WeightsOptions& options);

// Creates one model of the factory with these weights on each device. Throws WeightsError if they do not fit.
std::vector<Model> models_with(const NamedWeights& named, const ModelFactory& factory, Precision precision,
                               std::span<const torch::Device> devices);

}  // namespace lockstep
