// The modules, parameters and buffers of one replica, under Python's names.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include <lockstep/models/program/interpreter.h>
#include <lockstep/models/program/parts.h>

namespace lockstep::program {

// The bytes of a tensor of the file, as a tensor of its own.
torch::Tensor read_stored(const Archive& archive, const StoredTensor& stored);

// Sizes that are numbers.
std::vector<int64_t> numbers_of(const std::vector<Size>& sizes);

struct ModuleTree {
  std::vector<torch::Tensor> tensors;  // those of Program::Parts::tensors; the modules' own
  std::vector<BoundNorm> training_norms, evaluation_norms;  // those of the graphs
};

// Registers all in `root`, in the file's order. Batch norms become lockstep's, under the names of Python's;
// those whose tensors belong to no module get a module without tensors.
ModuleTree grow_modules(torch::nn::Module& root, const Program::Parts& parts);

}  // namespace lockstep::program
