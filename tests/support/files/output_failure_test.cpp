#include <lockstep/support/files/output_failure.h>
#include <lockstep/tests/catch.h>

#include <cerrno>
#include <string>

using namespace lockstep;

TEST_CASE("an error of writing says what the system says, and what a user can do") {
  const auto full = output_failure("cannot write 'a'", ENOSPC);
  CHECK(full.message() == std::string("cannot write 'a': No space left on device"));
  CHECK(full.hint() == "free some space, or choose another disk");
  CHECK(full.exit_code() == ExitCode::kOutput);
  CHECK(output_failure("x", EACCES).hint() == "choose a folder in which you may write");
  CHECK(output_failure("x", EROFS).hint() == "choose a folder in which you may write");
  CHECK(output_failure("x", ENOENT).hint() == "check the path: its folder must exist");
  CHECK(output_failure("x", ENOTDIR).hint() == "a part of the path is a file: choose another path");
  CHECK(output_failure("x", EFBIG).hint() == "raise the limit on the size of files (ulimit -f)");
  CHECK(output_failure("x", EIO).hint().empty());
}
