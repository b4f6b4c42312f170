// The flags in a library's hints.
#include <lockstep/tests/catch.h>
#include <string>

#include <lockstep/app/cli/flag_words.h>

using namespace lockstep;

TEST_CASE("a library's hints name the program's flags") {
  CHECK(with_flags("use CudaGraph::kAuto or CudaGraph::kOff") == "use --cuda-graph auto or --cuda-graph off");
  CHECK(with_flags("use allreduce gloo, or Compress::kNone") == "use --allreduce gloo, or --compress none");
  CHECK(with_flags("use allreduce two_shot, or list each GPU once") ==
        "use --allreduce two_shot, or list each GPU once");
  CHECK(with_flags("use the device list cpu, or cpux2") == "use --devices cpu, or cpux2");
  CHECK(with_flags("choose another name, or replace it with overwrite = true") ==
        "choose another name, or replace it with --overwrite");
  CHECK(with_flags("use batch size 64, or use a smaller batch size") ==
        "use --batch-size 64, or use a smaller --batch-size");
  CHECK(with_flags("give each process the address on which it is to listen") ==
        "give each process --listen ADDRESS, with the address that others reach");
  CHECK(with_flags("use --allreduce ring").size() == 20);  // it stays as it is
  CHECK(with_flags("").empty());
}
