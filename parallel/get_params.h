// The chapter's get_params: a copy of the parameters for one device.
#pragma once

#include <c10/core/Device.h>

#include <lockstep/support/types.h>

namespace lockstep {

// Returns new leaf tensors on `device` with the same shapes, dtypes and values, copied even if the originals
// are on that device. Each requires gradients and starts with a gradient of zeros, so that a replica without
// rows has a gradient to sum.
Params get_params(const Params& params, torch::Device device);

}  // namespace lockstep
