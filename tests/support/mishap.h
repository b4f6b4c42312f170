// An error that no code of lockstep throws.
#pragma once

#include <stdexcept>

namespace lockstep::testing {

struct Mishap : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::testing
