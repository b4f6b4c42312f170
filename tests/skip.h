// Catch2 2 has no way to skip a case: SKIP_CASE("why") ends it and marks it. ctest then counts it as skipped.
#pragma once

#include <string>

namespace lockstep::test {

void mark_skipped(const std::string& why);

}  // namespace lockstep::test

#define SKIP_CASE(why)                   \
  do {                                   \
    ::lockstep::test::mark_skipped(why); \
    return;                              \
  } while (false)
