#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <thread>
#include <vector>

#include <lockstep/data/dataset.h>
#include <lockstep/support/error.h>
#include <lockstep/support/row_numbers.h>
#include <lockstep/tests/support/reference.h>
#include <lockstep/tests/support/variable.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

// Row r holds the pixel values r, r + 1, ... modulo 256, and label r % 10.
ImageSet counting_set(int64_t rows) {
  const auto images = torch::arange(rows).view({rows, 1, 1, 1}) + torch::arange(784).view({1, 1, 28, 28});
  return {images.to(torch::kUInt8).contiguous(), (torch::arange(rows) % 10).to(torch::kUInt8)};
}

// The expected batch of these rows: quotients in double, rounded to float.
torch::Tensor expected_X(const std::vector<int64_t>& rows) {
  auto X = torch::empty({static_cast<int64_t>(rows.size()), 1, 28, 28});
  auto* pixel = X.mutable_data_ptr<float>();
  for (const int64_t row : rows) {
    for (int64_t i = 0; i < 784; ++i)
      *pixel++ = static_cast<float>(static_cast<double>((row + i) % 256) / 255);
  }
  return X;
}

// Gathers as a replica does, by row numbers.
void gather(const BatchSource& source, const std::vector<int64_t>& rows, Batch& into,
            torch::Device device = torch::kCPU) {
  if (into.size() == 0) into = Batch(std::make_shared<const BatchSpec>(source.spec()));
  torch::Tensor numbers;
  upload_rows(rows, source.size(), device, numbers);
  source.gather(numbers, /*epoch=*/0, into);
}

void check_gather(torch::Device device) {
  const auto source = resident_sources(counting_set(300))(device);
  CHECK(source->size() == 300);
  Batch batch;
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0}, {299, 0, 17, 17, 255}, {}, {5, 6}}) {
    gather(*source, rows, batch, device);
    const auto n = static_cast<int64_t>(rows.size());
    CHECK(batch.input().device() == device);
    CHECK(batch.target().device() == device);
    CHECK(batch.input().dtype() == torch::kFloat32);
    CHECK(batch.target().dtype() == torch::kInt64);
    CHECK(batch.input().sizes() == torch::IntArrayRef({n, 1, 28, 28}));
    CHECK(batch.input().cpu().equal(expected_X(rows)));
    CHECK(batch.target().cpu().equal(torch::tensor(rows, torch::kInt64) % 10));
  }
}

// Compares all 256 pixel values with Python's, bit by bit.
void check_pixel_values(torch::Device device) {
  const auto bits = lockstep::testing::reference("pixel_values.json");
  Batch batch;
  gather(*resident_sources(counting_set(1))(device), {0}, batch, device);
  const auto X = batch.input().cpu().flatten();
  for (int64_t value = 0; value < 256; ++value) {
    INFO("pixel value " << value);
    CHECK(std::bit_cast<uint32_t>(X[value].item<float>()) == bits.at(value).get<uint32_t>());
  }
}

}  // namespace

TEST_CASE("gather writes the requested rows in order") { check_gather(torch::kCPU); }
TEST_CASE("gather writes the requested rows on a GPU", "[cuda]") { check_gather({torch::kCUDA, 0}); }

TEST_CASE("a pixel becomes the same float as with Python's ToTensor") { check_pixel_values(torch::kCPU); }
TEST_CASE("a pixel becomes the same float on a GPU", "[cuda]") { check_pixel_values({torch::kCUDA, 0}); }

TEST_CASE("ctest says where the reference files are: the build may have come from another machine") {
  const bool by_ctest = std::getenv("LOCKSTEP_TEST_CASES") != nullptr;
  CHECK(by_ctest == (std::getenv("LOCKSTEP_TEST_REFERENCE") != nullptr));
  const lockstep::testing::Variable elsewhere("LOCKSTEP_TEST_REFERENCE", "/elsewhere");
  CHECK(lockstep::testing::reference_path("pixel_values.json") == "/elsewhere/pixel_values.json");
}

TEST_CASE("gather writes into tensors that fit and replaces those that do not") {
  const auto source = resident_sources(counting_set(20))(torch::kCPU);
  const std::vector<int64_t> rows = {3, 1}, other_rows = {7, 9};
  Batch batch;
  gather(*source, rows, batch);
  const auto X = batch.input(), y = batch.target();
  gather(*source, other_rows, batch);
  CHECK(batch.input().is_same(X));
  CHECK(batch.target().is_same(y));
  CHECK(X.equal(expected_X(other_rows)));

  const auto in_double = torch::zeros({2, 1, 28, 28}, torch::kFloat64);
  const auto strided = torch::zeros({28, 28, 1, 2}).permute({3, 2, 0, 1});
  const auto larger = torch::zeros({3, 1, 28, 28});
  for (const auto& unfit : {in_double, strided, larger}) {
    batch = {unfit, torch::zeros({unfit.size(0)}, torch::kInt32)};
    gather(*source, rows, batch);
    CHECK(batch.input().is_contiguous());
    CHECK(batch.input().equal(expected_X(rows)));
    CHECK(batch.target().equal(torch::tensor({3, 1}, torch::kInt64)));
    CHECK(unfit.count_nonzero().item<int64_t>() == 0);
  }
}

TEST_CASE("a row number outside the set is an error with both values") {
  const auto source = resident_sources(counting_set(20))(torch::kCPU);
  Batch batch;
  for (const int64_t row : {int64_t{-1}, int64_t{20}, int64_t{1} << 40}) {
    const std::vector<int64_t> rows = {0, 19, row};
    CHECK_THROWS_AS(gather(*source, rows, batch), DataError);
    CHECK_THROWS_WITH(gather(*source, rows, batch),
                      ContainsSubstring("row " + std::to_string(row)) && ContainsSubstring("0 to 19"));
  }
  CHECK_FALSE(batch.input().defined());
}

TEST_CASE("row numbers are written into a tensor that fits") {
  torch::Tensor numbers;
  upload_rows(std::vector<int64_t>{3, 1}, 4, torch::kCPU, numbers);
  const auto first = numbers;
  upload_rows(std::vector<int64_t>{0, 2}, 4, torch::kCPU, numbers);
  CHECK(numbers.is_same(first));
  CHECK(first.equal(torch::tensor({0, 2}, torch::kInt64)));
  upload_rows(std::vector<int64_t>{}, 4, torch::kCPU, numbers);
  CHECK(numbers.numel() == 0);
  CHECK(first.equal(torch::tensor({0, 2}, torch::kInt64)));
}

TEST_CASE("an upload has the numbers of a tensor with strides of its own") {
  const auto from = torch::arange(6, torch::kInt64).view({2, 3}).t();
  const auto into = torch::zeros({3, 2}, torch::kInt64);
  upload(from, into);
  CHECK(into.equal(torch::tensor({0, 3, 1, 4, 2, 5}, torch::kInt64).view({3, 2})));
}

TEST_CASE("a source on the host shares the images' memory") {
  const ImageSet set = counting_set(4);
  const auto source = resident_sources(set)(torch::kCPU);
  set.images[2].fill_(255);
  Batch batch;
  gather(*source, {2}, batch);
  CHECK(batch.input().equal(torch::ones({1, 1, 28, 28})));
}

TEST_CASE("several threads can gather from one source at once") {
  constexpr int kThreads = 4;
  const auto source = resident_sources(counting_set(256))(torch::kCPU);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Batch batch;
      for (int64_t round = 0; round < 50; ++round) {
        const std::vector<int64_t> rows = {thread, round, thread * 60 + round % 60, 255 - round};
        gather(*source, rows, batch);
        if (!batch.input().equal(expected_X(rows)) ||
            !batch.target().equal(torch::tensor(rows, torch::kInt64) % 10))
          ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("first_rows shares memory and refuses rows that the set does not have") {
  const ImageSet set = counting_set(20);
  const ImageSet first = first_rows(set, 7);
  CHECK(first.size() == 7);
  CHECK(first.labels.size(0) == 7);
  CHECK(first.images.const_data_ptr() == set.images.const_data_ptr());
  CHECK(first.labels.const_data_ptr() == set.labels.const_data_ptr());
  CHECK(first_rows(set, 20).size() == 20);
  for (const int64_t rows : {-1, 0, 21}) {
    CHECK_THROWS_AS(first_rows(set, rows), UsageError);
    CHECK_THROWS_WITH(first_rows(set, rows),
                      ContainsSubstring(std::to_string(rows) + " rows") && ContainsSubstring("1 to 20"));
  }
}
