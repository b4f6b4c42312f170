// torch's batch normalisations among the parts of a module. They have no base class of their own in common.
#pragma once

#include <torch/nn/modules/batchnorm.h>

namespace lockstep {

// Returns true if the module is one of torch's batch normalisations, or derives from one, as lockstep's do.
// Then it has called use(norm) with torch's class.
template <class Use>
bool with_batch_norm(const torch::nn::Module& module, const Use& use) {
  const auto try_as = [&](const auto* norm) {
    if (norm) use(*norm);
    return norm != nullptr;
  };
  return try_as(dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module)) ||
         try_as(dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module)) ||
         try_as(dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module));
}

inline bool is_batch_norm(const torch::nn::Module& module) {
  return with_batch_norm(module, [](const auto&) {});
}

}  // namespace lockstep
