// The blocks of an evaluation, and how its callback ends it in several processes.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <map>
#include <string>

#include <lockstep/parallel/training/evaluated_blocks.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/mishap.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the sizes of blocks that are evaluated differ by at most one, and none has more than 256 rows") {
  using Sizes = std::map<int64_t, int64_t>;  // how many blocks there are of each
  const std::map<int64_t, Sizes> expected = {{0, {}},
                                             {1, {{1, 1}}},
                                             {256, {{256, 1}}},
                                             {257, {{129, 1}, {128, 1}}},
                                             {600, {{200, 3}}},
                                             {10'000, {{250, 40}}},
                                             {10'007, {{251, 7}, {250, 33}}}};
  for (const auto& [rows, sizes] : expected) {
    INFO(rows << " rows");
    const Blocks blocks{.rows = rows};
    Sizes found;
    int64_t next = 0;
    for (int64_t block = 0; block < blocks.count(); ++block) {
      CHECK(blocks.begin(block) == next);
      next += blocks.size(block);
      ++found[blocks.size(block)];
    }
    CHECK(next == rows);
    CHECK(found == sizes);
  }
}

// A process of two replicas: its count of rows is whole when the callback throws, since it has told the other
// processes nothing yet.
TEST_CASE("an evaluation that a callback ends in a process's last block ends in all processes") {
  for (const int guilty : {0, 1}) {
    INFO("process " << guilty);
    const auto errors = in_processes({2, 2}, {}, [&](int process, const TrainerOptions& own) {
      Trainer trainer(two_layers(), rows_on_device(1024), rows_on_device(1024), own);  // a block for each
      std::string error;
      for (int i = 0; i < 5; ++i) {
        try {
          trainer.evaluate([&](int64_t done, int64_t rows) {
            if (process == guilty && rows - done == 256) throw Mishap("enough");
          });
        } catch (const Mishap&) {
          error += "own ";
        } catch (const PeerError& peer) {
          error += peer.message().starts_with("another process ended the evaluation") ? "peer " : "?";
        }
      }
      return error;
    });
    CHECK(errors[static_cast<size_t>(guilty)] == "own own own own own ");
    CHECK(errors[static_cast<size_t>(1 - guilty)] == "peer peer peer peer peer ");
  }
}
