// Numbers of its own for each replica. Expected are those of stock torch, whose default generator gets the
// seed that Python computes by the formula of replica_random.h.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replica_workers.h>

using namespace lockstep;

namespace {

struct Draw {
  std::string name;
  std::function<torch::Tensor()> run;
};

// Draws in its backward pass.
struct NoisyGradient : torch::autograd::Function<NoisyGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& X) { return X * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * torch::rand_like(gradients[0])};
  }
};

std::vector<Draw> draws() {
  const auto ones = [] { return torch::ones({4, 6}); };
  const auto gradient = [](const std::function<torch::Tensor(const torch::Tensor&)>& f) {
    auto X = torch::linspace(-1, 1, 24).view({4, 6}).requires_grad_();
    f(X).sum().backward();
    return X.grad();
  };
  return {
      {"a Dropout module", [=] { return torch::nn::Dropout(.5)(ones()); }},
      {"an AlphaDropout module", [=] { return torch::nn::AlphaDropout(.5)(ones()); }},
      {"functional dropout", [=] { return torch::nn::functional::dropout(ones()); }},
      {"dropout in place",
       [=] { return torch::nn::Dropout(torch::nn::DropoutOptions(.3).inplace(true))(ones()); }},
      {"dropout and its backward",
       [=] { return gradient([](const auto& X) { return torch::nn::Dropout(.5)(X).square(); }); }},
      {"a backward pass that draws",
       [=] { return gradient([](const auto& X) { return NoisyGradient::apply(X); }); }},
      {"rand", [] { return torch::rand({5}); }},
      {"randn, fp64", [] { return torch::randn({5}, torch::kFloat64); }},
      {"randint", [] { return torch::randint(100, {5}); }},
      {"randperm", [] { return torch::randperm(20); }},
      {"rand_like", [=] { return torch::rand_like(ones()); }},
      {"bernoulli", [=] { return torch::bernoulli(ones() * .5); }},
      {"normal of means", [=] { return at::normal(ones(), 2.); }},
      {"multinomial", [=] { return torch::multinomial(ones(), 3); }},
      {"rrelu", [=] { return torch::rrelu(-ones(), .1, .3, true); }},
      {"a module's initial weights", [] { return torch::nn::Linear(3, 2)->weight.detach().clone(); }},
  };
}

torch::Tensor state_of_default() { return at::detail::getDefaultCPUGenerator().get_state(); }

void seed_default(uint64_t seed) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(seed);
}

// The tensors that stock torch draws from this seed.
std::vector<torch::Tensor> stock(uint64_t seed) {
  seed_default(seed);
  std::vector<torch::Tensor> drawn;
  for (const auto& draw : draws()) drawn.push_back(draw.run());
  return drawn;
}

void check_equal(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(draws()[i].name);
    CHECK(found[i].equal(expected[i]));
  }
}

}  // namespace

TEST_CASE("a replica's seed follows from (seed, step, rank) as Python computes it") {
  struct {
    uint64_t seed;
    int64_t step;
    int rank;
    uint64_t expected;
  } const cases[] = {
      {0, 0, 0, 0xfb10267846b762b3},
      {0, 0, 1, 0x120306414ed8726b},
      {0, 1, 0, 0x6ef2c2de862e9a1e},
      {1, 0, 0, 0x23a9ae5c5c502ef3},
      {UINT64_MAX, int64_t{1} << 40, 7, 0xc7fd3214205b03f1},
  };
  for (const auto& [seed, step, rank, expected] : cases) {
    INFO(seed << ", step " << step << ", rank " << rank);
    CHECK(replica_generator(seed, step, rank).current_seed() == expected);
  }
}

TEST_CASE("in every replica's thread unmodified operations draw what stock torch draws from its seed") {
  constexpr int kReplicas = 3, kSteps = 20;
  using Found = std::array<std::vector<torch::Tensor>, kSteps>;
  std::array<Found, kReplicas> found;
  ReplicaWorkers workers(std::vector<torch::Device>(kReplicas, torch::kCPU), 1);
  const auto before = state_of_default();
  workers.run([&](int rank) {  // at the same time
    for (int step = 0; step < kSteps; ++step) {
      const ReplicaRandom random(5, step, rank);
      for (const auto& draw : draws()) found[rank][step].push_back(draw.run());
    }
  });
  CHECK(state_of_default().equal(before));
  for (int rank = 0; rank < kReplicas; ++rank) {
    for (int step = 0; step < kSteps; ++step) {
      INFO("rank " << rank << ", step " << step);
      check_equal(found[rank][step], stock(replica_generator(5, step, rank).current_seed()));
    }
  }
  CHECK_FALSE(found[0][0][0].equal(found[1][0][0]));
  CHECK_FALSE(found[0][0][0].equal(found[0][1][0]));
}

TEST_CASE("the innermost guard counts, a stream goes on, and a given generator is used") {
  const auto from = [](const at::Generator& generator) { return torch::rand({4}, generator); };
  const auto stream = [](int rank) { return replica_generator(0, 0, rank); };
  seed_default(3);
  const auto outside = at::detail::createCPUGenerator(3), first = stream(0), second = stream(1);
  {
    const ReplicaRandom random(0, 0, 0);
    CHECK(torch::rand({4}).equal(from(first)));
    {
      const ReplicaRandom inner(0, 0, 1);
      CHECK(torch::rand({4}).equal(from(second)));
    }
    CHECK(torch::rand({4}).equal(from(first)));
    CHECK(from(at::detail::createCPUGenerator(8)).equal(from(at::detail::createCPUGenerator(8))));
    CHECK(torch::rand({4}).equal(from(first)));
  }
  CHECK(torch::rand({4}).equal(from(outside)));
  const auto kept = stream(1), same = stream(1);
  for (int part = 0; part < 2; ++part) {
    const ReplicaRandom random(kept);
    CHECK(torch::rand({4}).equal(from(same)));
  }
}
