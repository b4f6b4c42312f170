// Actions whose exceptions are dropped.
#pragma once

namespace lockstep {

// For destructors, which must not throw, and after an error that has been thrown already.
template <class Action>
void quietly(const Action& action) noexcept {
  try {
    action();
  } catch (...) {  // the caller has nobody to tell
  }
}

}  // namespace lockstep
