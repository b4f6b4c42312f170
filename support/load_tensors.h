// Copies tensors by name.
#pragma once

#include <set>
#include <span>
#include <string>

#include <lockstep/support/types.h>

namespace lockstep {

// The owner of the tensors, for errors.
struct TensorOwner {
  std::string name;   // "model"
  std::string parts;  // what it is made of: "parameters and buffers"
  std::string hint;   // of the error
};

// Throws WeightsError if all names of `from` would be among `names` without what a wrapper, such as
// DistributedDataParallel or torch.compile, has put before them.
void refuse_wrapped(const std::set<std::string>& names, std::span<const NamedTensor> from,
                    const TensorOwner& owner);

// Throws WeightsError unless `from` has exactly the names of `into`, each once, with the same shapes and
// dtypes that can be cast (torch::canCast): not complex ones to real ones, not fractions to integers.
void require_same_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                          const TensorOwner& owner);

// Copies each tensor of `from` to the one of the same name, in place; dtypes that can be cast, and devices,
// may differ. Throws as require_same_tensors() does, and then changes nothing.
void load_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                  const TensorOwner& owner);

}  // namespace lockstep
