// Copies tensors by name.
#pragma once

#include <span>
#include <string>

#include <lockstep/support/types.h>

namespace lockstep {

// The owner of the tensors, for errors.
struct TensorOwner {
  std::string name;   // "model"
  std::string parts;  // its parts: "parameters and buffers"
  std::string hint;   // of the error
};

// Throws WeightsError unless `from` has each tensor of `into` under its name, with the same shape and a dtype
// that can be cast (torch::canCast): not complex to real, not fractions to integers. A tensor that is in
// `into` under several names (tied weights) needs one of them; several must have equal values. The error says
// so if all names would be right without what a wrapper, such as DistributedDataParallel or torch.compile,
// has put before them.
void require_same_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                          const TensorOwner& owner);

// As require_same_tensors(), with the same dtypes: rounding would change what goes on from these tensors.
void require_same_tensors_and_types(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                                    const TensorOwner& owner);

// Copies each tensor of `from` to the one of the same name, in place; dtypes that can be cast, and devices,
// may differ. Throws as require_same_tensors() does, and then changes nothing.
void load_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                  const TensorOwner& owner);

}  // namespace lockstep
