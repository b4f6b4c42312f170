// SKIP_CASE("why") ends a test case and marks it as skipped for ctest. Catch2 2 has no SKIP, so both versions
// use this macro.
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
