// What an exception of torch says.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace lockstep {

// The exception's text, without the backtrace that torch adds to its own.
inline std::string words_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace lockstep
