#include <torch/utils.h>

#include <lockstep/tests/catch.h>

#include <atomic>
#include <cmath>

#include <lockstep/parallel/over_replicas.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("numbers over replicas: sum in the order of ranks, mean, maximum and one rank's") {
  const auto results = by_rank(3, [](int rank, Endpoint& endpoint) {
    const double value = rank == 0 ? 1e16 : 1.;  // (1e16 + 1) + 1 is 1e16 in double, 1e16 + (1 + 1) is not
    return std::tuple(sum_over_replicas(value, endpoint), sum_over_replicas(rank + 1, endpoint),
                      mean_over_replicas(rank, endpoint), max_over_replicas(-1. - rank, endpoint),
                      value_of_replica(int64_t{1} << (60 + rank), endpoint, 2), is_first(endpoint));
  });
  for (size_t rank = 0; rank < results.size(); ++rank) {
    CHECK(results[rank] == std::tuple(1e16, 6, 1., -1., int64_t{1} << 62, rank == 0));
  }
}

TEST_CASE("the maximum over replicas is NaN where one has it, whichever it is") {
  for (const int bad : {0, 1, 2}) {
    for (const double largest : by_rank(3, [&](int rank, Endpoint&endpoint) {
           return max_over_replicas(rank == bad ? NAN : rank, endpoint);
         })) {
      CHECK(std::isnan(largest));
    }
  }
}

TEST_CASE("tensors over replicas: new ones without a graph, of any strides; the own one stays") {
  struct Found {
    torch::Tensor sum, mean, largest, second, own;
  };
  const auto base = torch::arange(6, torch::kFloat64).view({2, 3});
  const auto results = by_rank(3, [&](int rank, Endpoint& endpoint) {
    const auto own = (base * (rank + 1)).t().requires_grad_();
    return Found{sum_over_replicas(own, endpoint), mean_over_replicas(own, endpoint),
                 max_over_replicas(rank == 1 ? -own : own, endpoint), value_of_replica(own, endpoint, 1),
                 own};
  });
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const auto& [sum, mean, largest, second, own] = results[rank];
    CHECK(sum.equal(base.t() * 6));
    CHECK(mean.equal(base.t() * 2));
    CHECK(largest.equal(base.t() * 3));
    CHECK(second.equal(base.t() * 2));
    CHECK_FALSE(sum.requires_grad());
    CHECK(own.equal(base.t() * static_cast<double>(rank + 1)));
  }
}

TEST_CASE("a rank that is none is refused") {
  for (const auto& words :
       refusals(2, [](int, Endpoint& endpoint) { value_of_replica(torch::ones({1}), endpoint, 2); })) {
    CHECK_THAT(words, ContainsSubstring("no rank 2 among 2 replicas"));
  }
}

TEST_CASE("a barrier is passed when all have come") {
  std::atomic<int> came = 0;
  for (const int seen : by_rank(3, [&](int, Endpoint& endpoint) {
         ++came;
         barrier(endpoint);
         return came.load();
       })) {
    CHECK(seen == 3);
  }
}
