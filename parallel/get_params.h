// The chapter's get_params: a copy of the parameters for one device.
#pragma once

#include <c10/core/Device.h>

#include <lockstep/support/types.h>

namespace lockstep {

// New leaf tensors on `device` with the same values; each requires gradients and starts with a gradient of
// zeros, so that a replica that gets no rows still has one to sum. The originals are not touched, not even on
// the same device.
Params get_params(const Params& params, torch::Device device);

}  // namespace lockstep
