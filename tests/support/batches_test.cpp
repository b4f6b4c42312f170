#include <lockstep/tests/catch.h>
#include <cstdint>
#include <limits>

#include <lockstep/support/batches.h>

using namespace lockstep;

TEST_CASE("rows make whole batches and a last one of what is left") {
  struct Row {
    int64_t rows, size, batches, last;
  };
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [rows, size, batches, last] :
       {Row{0, 4, 0, 0}, Row{1, 4, 1, 1}, Row{4, 4, 1, 4}, Row{5, 4, 2, 1}, Row{8, 4, 2, 4}, Row{7, 1, 7, 1},
        Row{3, kMost, 1, 3}, Row{kMost, kMost, 1, kMost}, Row{kMost, 2, kMost / 2 + 1, 1}}) {
    INFO(rows << " rows in batches of " << size);
    CHECK(batches_of(rows, size) == batches);
    CHECK(rows_of_last_batch(rows, size) == last);
  }
}
