// The version, for --version and for the files that runs write.
#pragma once

#include <string>

namespace lockstep {

// "lockstep 0.1.0 (LibTorch 2.15.0, without CUDA)"
std::string version_text();

}  // namespace lockstep
