// Files that grow by whole lines.
#include <signal.h>
#include <sys/resource.h>

#include <lockstep/tests/catch.h>

#include <string>

#include <lockstep/app/files/growing_file.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a growing file is cut to what is kept, and grows from there") {
  const TempFolder folder;
  const auto path = folder / "a";
  { GrowingFile(path, 100).write("one\n"); }
  {
    GrowingFile file(path, 100);
    CHECK(file.size() == 4);
    file.write("two\nthree\n");
    CHECK(file.size() == 14);
  }
  GrowingFile file(path, 8);
  CHECK(read_file(path) == "one\ntwo\n");
  file.write("four\n");
  CHECK(read_file(path) == "one\ntwo\nfour\n");
  CHECK_THROWS_AS(GrowingFile(folder / "none" / "a", 0), OutputError);
}

TEST_CASE("a line that does not fit on the disk leaves the growing file as it was") {
  const TempFolder folder;
  GrowingFile file(folder / "a", 0);
  file.write("one\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);  // so that write() fails, as on a full disk
  const rlimit small{.rlim_cur = 6, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_AS(file.write("two\n"), OutputError);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(read_file(folder / "a") == "one\n");
  file.write("two\n");
  CHECK(read_file(folder / "a") == "one\ntwo\n");
}
