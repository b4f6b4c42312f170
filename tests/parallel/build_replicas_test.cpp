#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>

#include <lockstep/parallel/build_replicas.h>
#include <lockstep/support/error.h>

using namespace lockstep;

TEST_CASE("replicas are built with the numbers of one model, and the generator goes on as after one") {
  for (const int count : {1, 2, 5}) {
    INFO(count << " replicas");
    torch::manual_seed(9);
    const torch::nn::Linear expected(4, 3);
    const auto next = torch::rand({3});
    torch::manual_seed(9);
    const auto nets = build_replicas(count, [] { return torch::nn::Linear(4, 3); });
    CHECK(torch::rand({3}).equal(next));
    REQUIRE(nets.size() == static_cast<size_t>(count));
    if (count > 1) CHECK(nets[1]->weight.data_ptr() != nets[0]->weight.data_ptr());
    for (const auto& net : nets) {
      CHECK(net->weight.equal(expected->weight));
      CHECK(net->bias.equal(expected->bias));
    }
  }
}

TEST_CASE("the generator goes on as after the first model, also where later ones draw other numbers") {
  torch::manual_seed(9);
  torch::rand({2});
  const auto next = torch::rand({3});
  torch::manual_seed(9);
  const auto built = build_replicas(3, [drawn = 2]() mutable { return torch::rand({drawn++}); });
  CHECK(built[2].numel() == 4);
  CHECK(torch::rand({3}).equal(next));
}

TEST_CASE("a model may be built of replicas: each outer one draws the same numbers") {
  torch::manual_seed(9);
  const auto first = torch::rand({2}), second = torch::rand({2}), next = torch::rand({3});
  torch::manual_seed(9);
  const auto built = build_replicas(3, [] {
    auto inner = build_replicas(2, [] { return torch::rand({2}); });
    inner.push_back(torch::rand({2}));
    return inner;
  });
  CHECK(torch::rand({3}).equal(next));
  for (const auto& outer : built) {
    CHECK(outer[0].equal(first));
    CHECK(outer[1].equal(first));
    CHECK(outer[2].equal(second));
  }
}

TEST_CASE("no replicas are built of none, and a negative number of them is refused") {
  const auto build = [] { return 1; };
  CHECK(build_replicas(0, build).empty());
  CHECK_THROWS_AS(build_replicas(-1, build), UsageError);
}
