// Names of tensors with a prefix and a dot before them: "net.weight".
#pragma once

#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// "net.weight"; "weight" if the prefix is empty.
std::string prefixed(const std::string& prefix, const std::string& rest);

std::vector<NamedTensor> with_prefix(const std::string& prefix, std::vector<NamedTensor> tensors);

// Returns those whose names have the prefix, without it.
std::vector<NamedTensor> without_prefix(const std::string& prefix, const std::vector<NamedTensor>& tensors);

void append(std::vector<NamedTensor>& all, std::vector<NamedTensor> more);

}  // namespace lockstep
