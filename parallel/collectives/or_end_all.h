// Errors of code that other replicas wait for.
#pragma once

#include <exception>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// Returns what action() returns. Its error ends the collectives of all replicas, which would wait for this
// one otherwise, and is rethrown.
template <class Action>
auto or_end_all(Endpoint& endpoint, const Action& action) {
  try {
    return action();
  } catch (...) {
    endpoint.abort(std::current_exception());
    throw;
  }
}

}  // namespace lockstep
