#include <lockstep/tests/catch.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/tests/support/reference_path.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("batch_order is the order that Python computes") {
  std::ifstream file(lockstep::testing::reference_path("batch_order.txt"));
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    INFO(line);
    std::istringstream words(line);
    uint64_t seed;
    int64_t epoch, rows;
    std::string digest;
    REQUIRE(words >> seed >> epoch >> rows >> digest);
    const auto order = batch_order(seed, epoch, rows);
    REQUIRE(order.size() == static_cast<size_t>(rows));
    for (const int64_t row : std::span(order).first(std::min<size_t>(order.size(), 8))) {
      int64_t expected;
      REQUIRE(words >> expected);
      CHECK(row == expected);
    }
    Sha256 hash;
    hash.update(std::as_bytes(std::span(order)));  // little endian, as in the reference
    CHECK(hash.hex() == digest);
  }
  CHECK(cases == 80);
}

TEST_CASE("batch_order is a permutation") {
  for (const int64_t rows : {0, 1, 2, 3, 97, 256, 60'000}) {
    INFO(rows << " rows");
    auto order = batch_order(5, 3, rows);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(static_cast<size_t>(rows));
    std::iota(all.begin(), all.end(), int64_t{0});
    CHECK(order == all);
  }
}

// LibTorch's DistributedRandomSampler gives every epoch the same order: pytorch/pytorch#73141.
TEST_CASE("each epoch and each seed has its own order (pytorch/pytorch#73141)") {
  std::set<std::vector<int64_t>> orders;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    for (int64_t epoch = 0; epoch < 10; ++epoch) orders.insert(batch_order(seed, epoch, 1000));
  }
  CHECK(orders.size() == 40);
  CHECK(batch_order(1, 2, 1000) == batch_order(1, 2, 1000));
}

TEST_CASE("batch_order puts every row in every place about equally often") {
  constexpr int64_t kRows = 5;
  constexpr int kOrders = 20'000;
  std::vector<int> count(kRows * kRows);
  for (int epoch = 0; epoch < kOrders; ++epoch) {
    const auto order = batch_order(0, epoch, kRows);
    for (int64_t place = 0; place < kRows; ++place)
      ++count[static_cast<size_t>(place * kRows + order[place])];
  }
  // Binomial(20000, 1/5): mean 4000, standard deviation 57.
  for (const int times : count) CHECK(std::abs(times - 4000) < 5 * 57);
}

TEST_CASE("batch_order refuses negative epochs and numbers of rows") {
  CHECK_THROWS_AS(batch_order(0, 0, -1), UsageError);
  CHECK_THROWS_WITH(batch_order(0, 0, -1), ContainsSubstring("-1 rows"));
  CHECK_THROWS_WITH(batch_order(0, 0, (int64_t{1} << 32) + 1),
                    ContainsSubstring("4294967297") && ContainsSubstring("4294967296"));
  CHECK_THROWS_AS(batch_order(0, -1, 10), UsageError);
}
