#include <lockstep/tests/catch.h>

#include <filesystem>
#include <vector>

#include <lockstep/support/tensor_allocator.h>
#include <lockstep/tests/support/file_limit.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/mapped_file.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMebibyte = 1 << 20;

// Writes each element and reads it again.
void check_holds_values(torch::Tensor tensor) {
  CHECK(tensor.is_contiguous());
  const auto values = torch::arange(tensor.numel()).remainder(251).view(tensor.sizes());
  tensor.copy_(values);
  CHECK(tensor.to(torch::kInt64).equal(values));
}

}  // namespace

TEST_CASE("tensors of a mebibyte and more lie in files without a name, smaller ones on the heap") {
  const TempFolder folder;
  const auto memory = file_memory(folder.path());
  struct Case {
    std::vector<int64_t> shape;
    torch::ScalarType dtype;
    bool in_file;
  };
  const Case cases[] = {{{kMebibyte}, torch::kUInt8, true},
                        {{kMebibyte - 1}, torch::kUInt8, false},
                        {{3, 100'003}, torch::kFloat32, true},
                        {{kMebibyte / 8}, torch::kFloat64, true},
                        {{kMebibyte / 2 - 1}, torch::kBFloat16, false},
                        {{0, 7}, torch::kFloat32, false},
                        {{}, torch::kFloat32, false}};
  for (const auto& [shape, dtype, in_file] : cases) {
    CAPTURE(shape, dtype);
    const auto tensor = memory(shape, dtype);
    CHECK(tensor.sizes() == shape);
    CHECK(tensor.scalar_type() == dtype);
    CHECK(in_nameless_file(tensor, folder.path()) == in_file);
    check_holds_values(tensor);
    CHECK_FALSE(in_nameless_file(heap_memory()(shape, dtype), folder.path()));
  }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("where no file can be made, tensors lie on the heap") {
  const TempFolder folder;
  SECTION("there is no such folder") {
    check_holds_values(file_memory(folder / "none")({2 * kMebibyte}, torch::kUInt8));
  }
  SECTION("the disk is full") {
    const FileLimit full(kMebibyte);
    const auto tensor = file_memory(folder.path())({2 * kMebibyte}, torch::kUInt8);
    CHECK_FALSE(in_nameless_file(tensor, folder.path()));
    check_holds_values(tensor);
  }
  CHECK(fs::is_empty(folder.path()));
}
