// Exceptions of every kind as errors of lockstep.
#pragma once

#include <exception>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

// The exception as an error with an exit code, whose texts name flags where they name options.
Error as_error(const std::exception_ptr& thrown);

// An error that ends one of several processes. Its text begins with the process: "rank 2 (process 1)". The
// program then exits without clean-up, which could destroy objects that threads use while they wait for a
// lost process.
class ProcessError : public Error {
 public:
  ProcessError(const std::string& who, const Error& error)
      : Error(error.exit_code(), who + ": " + error.message_text(), error.hint_text()) {}
};

}  // namespace lockstep
