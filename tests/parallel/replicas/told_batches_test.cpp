#include <torch/utils.h>

#include <lockstep/tests/catch.h>

#include <lockstep/parallel/replicas/told_batches.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

torch::Tensor two_ranks(const ToldBatch& a, const ToldBatch& b) {
  return torch::stack({a.to_tensor(), b.to_tensor()});
}

}  // namespace

TEST_CASE("batches that were told are due at once on a CPU, and are taken once, in their order") {
  ToldBatches told;
  CHECK_FALSE(told.due());
  CHECK_FALSE(told.take().defined());
  const auto first = two_ranks({.number = 1, .rows = 4}, {.number = 1, .rows = 4});
  const auto second = two_ranks({.number = 2, .rows = 3}, {.number = 2, .rows = 3});
  told.add(first);
  CHECK(told.due());
  told.add(second);
  CHECK(told.take().equal(torch::stack({first, second})));
  CHECK_FALSE(told.due());
}

TEST_CASE("batches on a device are due when enough have come") {
  ToldBatches told;
  const auto there = torch::zeros({2, 4}, torch::dtype(torch::kInt64).device(torch::kMeta));
  for (size_t i = 0; i + 1 < ToldBatches::kMost; ++i) told.add(there);
  CHECK_FALSE(told.due());
  told.add(there);
  CHECK(told.due());
}

TEST_CASE("the first step whose batches differ is named") {
  ToldBatches told;
  told.add(two_ranks({.number = 6, .rows = 4}, {.number = 6, .rows = 4}));
  told.add(two_ranks({.number = 7, .rows = 4}, {.number = 7, .rows = 5}));
  told.add(two_ranks({.number = 8, .rows = 1, .digest = ~uint64_t{0}}, {.number = 8, .rows = 1}));
  const auto all = told.take();
  require_same_batches(all.narrow(0, 0, 1));
  CHECK_THAT(refusal_of([&] { require_same_batches(all); }),
             ContainsSubstring("rank 1 has 5 rows where rank 0 has 4 rows"));
  CHECK_THAT(refusal_of([&] { require_same_batches(all.narrow(0, 2, 1)); }),
             ContainsSubstring("digest ffffffffffffffff"));
}
