// A hash of all weights of a replica, to compare runs bit by bit.
#pragma once

#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Returns the SHA-256 of the bytes of all tensors (contiguous, little endian), in order of their names. Waits
// for the device.
std::string weights_sha256(std::vector<NamedTensor> weights);

}  // namespace lockstep
