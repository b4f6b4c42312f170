// The code that the tests of ResNet-18 share.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <lockstep/support/files/sha256.h>
#include <lockstep/support/types.h>

namespace lockstep::testing {

// Hash of the values row by row, in any memory format.
inline std::string sha256_of(const Params& tensors) {
  Sha256 hash;
  for (const auto& tensor : tensors) {
    const auto rows = tensor.contiguous();
    hash.update(std::as_bytes(std::span(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes())));
  }
  return hash.hex();
}

}  // namespace lockstep::testing
