// The parameters and buffers of a module, each once.
//
// Layers share weights when one module, or one tensor, is registered under several names. LibTorch's
// named_parameters() then lists it under each of them; Python's, and these functions, under the first one.
#pragma once

#include <optional>
#include <span>
#include <string>
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

// Throws UsageError, with its name, for a sparse or quantized parameter or buffer: replicas copy the elements
// of strided tensors.
void require_strided(const torch::nn::Module& module);

// Returns what is new if the module has other parameters by now than those of distinct_parameters() at an
// earlier time, `before`: "parameter head.weight was registered". It compares the parameters themselves, not
// their values.
std::optional<std::string> changed_registration(const torch::nn::Module& module,
                                                std::span<const NamedTensor> before);

}  // namespace lockstep
