// Weights from outside into a module.
#pragma once

#include <span>

#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// Copies every tensor into the parameter or buffer of its name, whatever their dtypes. Throws WeightsError,
// and changes nothing, unless the names are exactly the module's and the shapes agree.
void load_weights_into(torch::nn::Module& module, std::span<const NamedTensor> weights);

}  // namespace lockstep
