// The words of an error that a call throws, for tables of refusals.
#pragma once

#include <string>

#include <lockstep/support/error.h>

namespace lockstep::testing {

// Returns the message of the error of this type that the call throws; empty if it throws nothing. Other
// exceptions pass.
template <class E = UsageError, class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.message();
  }
  return {};
}

// As refusal_of(), with the hint: "message | hint".
template <class E = UsageError, class Call>
std::string refusal_and_hint(const Call& call) {
  std::string hint;
  const auto message = refusal_of<E>([&] {
    try {
      call();
    } catch (const E& error) {
      hint = error.hint();
      throw;
    }
  });
  return message.empty() ? message : message + " | " + hint;
}

}  // namespace lockstep::testing
