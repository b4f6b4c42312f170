// Errors of files and folders that the system does not let a program write.
#pragma once

#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

// Returns "`what`: No space left on device", with a hint where the user can fix it. error: errno, or the
// value of an error code of std::filesystem.
OutputError output_failure(const std::string& what, int error);

}  // namespace lockstep
