// The parameters and buffers of a module as lines of text, which ranks and processes compare.
#pragma once

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep {

class Endpoint;

// One per parameter and buffer: "first.weight [8, 2] Float", "first.bias [8] Float, frozen"; with the strides
// of one that is not contiguous, since broadcasts and sums go by the order in memory. Throws as
// require_strided() (support/module_tensors.h) does.
std::vector<std::string> tensor_lines(const torch::nn::Module& module);

// A collective. Throws as agree() (parallel/collectives/agree.h) where a rank has another module.
void agree_on_module(const torch::nn::Module& module, Endpoint& endpoint);

}  // namespace lockstep
