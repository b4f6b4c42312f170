#pragma once

#include <string>
#include <system_error>

namespace lockstep {

// The text of an errno, for instance "No space left on device". Thread-safe, which std::strerror() need not
// be.
inline std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace lockstep
