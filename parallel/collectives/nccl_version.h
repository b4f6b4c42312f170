// The version of NCCL. Needs no torch.
#pragma once

#include <string>

namespace lockstep {

// "2.28.9"; empty in a build without NCCL.
std::string nccl_version();

}  // namespace lockstep
