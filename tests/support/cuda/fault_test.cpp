#include <lockstep/tests/catch.h>

#include <lockstep/support/cuda/fault.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string text(const Error& error) { return error.message() + " | " + error.hint(); }

}  // namespace

TEST_CASE("out of memory: the error names the requested and free memory, and a batch size that would fit") {
  const auto error = explain({.code = 2,
                              .words = "out of memory",
                              .device = "cuda:1",
                              .asked_bytes = 2'147'483'648,
                              .free_bytes = 1'250'000'000,
                              .fitting_batch = 192});
  CHECK(error.exit_code() == ExitCode::kMemory);
  CHECK(text(error) ==
        "cuda:1 is out of memory: 2.15 GB more were asked for, 1.25 GB are free | use batch size 192, which "
        "should fit, or fewer replicas on one GPU");
  CHECK_THAT(text(explain({.code = 2, .words = "out of memory", .device = "cuda:0"})),
             ContainsSubstring("| use a smaller batch size"));
}

TEST_CASE("a driver that is too old or missing") {
  for (const int code : {35, 803}) {
    const auto old =
        explain({.code = code, .words = "insufficient", .driver_version = 12040, .runtime_version = 13000});
    CHECK(old.exit_code() == ExitCode::kDevice);
    CHECK_THAT(text(old),
               ContainsSubstring(
                   "supports CUDA up to 12.4, this lockstep needs CUDA 13.0 | install a newer driver"));
    const auto none = explain({.code = code, .words = "insufficient", .runtime_version = 13000});
    CHECK(none.exit_code() == ExitCode::kDevice);
    CHECK_THAT(text(none), ContainsSubstring("no NVIDIA driver is installed on this machine"));
  }
  const auto hidden =
      explain({.code = 100, .words = "no device", .driver_version = 13000, .runtime_version = 13000});
  CHECK(hidden.exit_code() == ExitCode::kDevice);
  CHECK_THAT(text(hidden),
             ContainsSubstring("shows no GPU to this process | CUDA_VISIBLE_DEVICES may hide it"));
}

TEST_CASE("a GPU that the program has no kernels for") {
  for (const int code : {98, 209, 222}) {
    const auto error = explain({.code = code,
                                .words = "no kernel image",
                                .device = "cuda:0",
                                .capability = "7.5",
                                .built_for = "8.0, 9.0, 10.0, 12.0"});
    CHECK(error.exit_code() == ExitCode::kDevice);
    CHECK(text(error) ==
          "cuda:0 has compute capability 7.5, and this lockstep has kernels for 8.0, 9.0, 10.0, 12.0 | "
          "build it with -DCMAKE_CUDA_ARCHITECTURES=75");
  }
}

TEST_CASE("a GPU that the program has no kernels for, known by CUDA's text only") {
  CHECK(text(explain({.code = 209, .words = "no kernel image is available"})) ==
        "this lockstep has no kernels for the GPU: no kernel image is available | build it with "
        "-DCMAKE_CUDA_ARCHITECTURES=native");
}

TEST_CASE("an error in a kernel") {
  const auto error =
      explain({.code = 700, .words = "an illegal memory access was encountered", .device = "cuda:3"});
  CHECK(error.exit_code() == ExitCode::kFailed);
  CHECK_THAT(text(error),
             ContainsSubstring("cuda:3 reported CUDA error 700: an illegal memory access was encountered"));
  CHECK_THAT(text(explain({.code = 719, .words = "launch failure"})),
             ContainsSubstring("the GPU reported CUDA error 719"));
}
