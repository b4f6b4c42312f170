// The parameters and buffers of a module, each once.
//
// Layers share weights when one module, or one tensor, is registered under several names. LibTorch's
// named_parameters() then lists it under each of them; Python's, and these functions, under the first one.
#pragma once

#include <vector>

#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// In the order of registration. The tensors are the module's own.
std::vector<NamedTensor> distinct_parameters(const torch::nn::Module& module);
std::vector<NamedTensor> distinct_buffers(const torch::nn::Module& module);

// Parameters, then buffers.
std::vector<NamedTensor> distinct_tensors(const torch::nn::Module& module);

}  // namespace lockstep
