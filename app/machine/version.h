// The version, for --version and for the files that runs write.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// "0.2.0"
const char* version_number();

// "lockstep 0.2.0 (LibTorch 2.15.0, without CUDA)"
std::string version_text();

// The text that --version prints: the same with the commit, the compiler, and the instruction sets of this
// CPU and of the kernels that run on it. Four lines.
std::string version_lines();

// "g++ 12.2.0"
std::string compiler_text();

// `git describe` of the checkout that this program was built from: "1a2b3c4d5e", with "-dirty" if files were
// changed; "unknown" outside of a checkout. Defined by the build (cmake/LockstepCommit.cmake).
std::string_view built_commit();

}  // namespace lockstep
