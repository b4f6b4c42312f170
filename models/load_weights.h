// Loads weights into a module.
#pragma once

#include <span>

#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// Copies each tensor into the parameter or buffer of the same name; dtypes may differ. Throws WeightsError,
// and changes nothing, unless the names are exactly the module's and the shapes are equal. A tensor that
// the module has under several names (tied weights) may come under any of them; if it comes under several,
// these must have equal values.
void load_weights_into(torch::nn::Module& module, std::span<const NamedTensor> weights);

}  // namespace lockstep
