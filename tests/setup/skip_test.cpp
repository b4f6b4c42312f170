#include <lockstep/tests/skip.h>

#include <lockstep/tests/catch.h>

// Hidden, so that ctest does not list them: skips.sh runs them and looks at what comes out.
TEST_CASE("skips itself", "[.]") { SKIP_CASE("for the test of skipping"); }
TEST_CASE("passes", "[.]") { CHECK(true); }
TEST_CASE("fails", "[.]") { CHECK(1 == 2); }

// Names that ctest and Catch2 each would read as something else than a name; all of them have to arrive.
TEST_CASE("a name, with [brackets]; and \"quotes\" \\ * ~", "[cpu]") { CHECK(true); }
TEST_CASE("a name, with [brackets]", "[cpu][slow]") { CHECK(true); }
TEST_CASE("--quiet is a flag of others", "[cpu]") { CHECK(true); }
TEST_CASE("~this is not an exclusion", "[cpu]") { CHECK(true); }
