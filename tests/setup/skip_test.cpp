#include <lockstep/tests/skip.h>

#include <lockstep/tests/catch.h>

// Hidden from ctest: skips.sh runs them and checks their output.
TEST_CASE("skips itself", "[.]") { SKIP_CASE("for the test of skipping"); }
TEST_CASE("passes", "[.]") { CHECK(true); }
TEST_CASE("fails", "[.]") { CHECK(1 == 2); }

// Names with a special meaning to ctest or Catch2; they must be passed on unchanged.
TEST_CASE("a name, with [brackets]; and \"quotes\" \\ * ~", "[cpu]") { CHECK(true); }
TEST_CASE("a name, with [brackets]", "[cpu][slow]") { CHECK(true); }
TEST_CASE("--quiet is a flag of others", "[cpu]") { CHECK(true); }
TEST_CASE("~this is not an exclusion", "[cpu]") { CHECK(true); }
