// What an exception of any kind says, in one sentence.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

// The text of an exception: of lockstep's without the hint, of torch's without the backtrace.
inline std::string words_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->message();
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace lockstep
