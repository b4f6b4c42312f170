// One number for all weights of a replica, to compare runs bit by bit.
#pragma once

#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// SHA-256 over the raw bytes of all tensors (contiguous, little endian), in order of their names. Waits for
// the device.
std::string weights_sha256(std::vector<NamedTensor> weights);

}  // namespace lockstep
