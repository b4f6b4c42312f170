// SKIP_CASE("why") ends a case and marks it; ctest then counts it as skipped. Catch2 2 has no such thing, so
// it is our own for both versions.
#pragma once

#include <string>

namespace lockstep::testing {

void mark_skipped(const std::string& why);

}  // namespace lockstep::testing

#define SKIP_CASE(why)                      \
  do {                                      \
    ::lockstep::testing::mark_skipped(why); \
    return;                                 \
  } while (false)
