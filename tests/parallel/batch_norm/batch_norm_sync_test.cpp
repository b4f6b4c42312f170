// BnPolicy::kSync: statistics calculated by hand, states, errors amid an exchange, and models with torch's
// own batch norms or none. batch_norm_sync_whole_batch_test.cpp compares steps with torch's.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/models/batch_norm.h>
#include <lockstep/parallel/batch_norm_sync.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/batch_norm/synced_norms.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/mishap.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

// Rank 0 has 1, 2 and 3, rank 1 has 10, rank 2 no row: the mean is 4, the sum of squares about it 50.
TEST_CASE(
    "statistics of uneven shards are merged, forward and backward, with the numbers calculated by hand") {
  const std::vector<torch::Device> devices(3, torch::kCPU);
  const std::vector<std::vector<double>> values = {{1, 2, 3}, {10}, {}}, dys = {{1, 0, 0}, {2}, {}};
  ReplicaWorkers workers(devices, 1);
  const auto communicator = make_communicator({.devices = devices});
  std::vector<BatchNorm1d> layers;
  for (int i = 0; i < 3; ++i) {
    layers.emplace_back(torch::nn::BatchNormOptions(1).eps(0));
    layers.back()->to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    layers.back()->weight.fill_(2);
    layers.back()->bias.fill_(.5);
  }
  std::vector<torch::Tensor> ys(3), dxs(3);
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    const auto column = [](const auto& list) { return torch::tensor(list, torch::kFloat64).view({-1, 1}); };
    const BatchNormSync sync(*layers[i], endpoint);
    const auto x = column(values[i]).requires_grad_();
    ys[i] = layers[i]->forward(x);
    ys[i].backward(column(dys[i]));
    dxs[i] = x.grad();
  });
  const double deviation = std::sqrt(12.5);  // 50 / 4
  // dy sums to 3, dy x_hat to (-3 + 2 x 6) / deviation = 9 / deviation.
  const auto dx = [&](double x, double dy) { return 2 / deviation * (dy - 3. / 4 - (x - 4) / 12.5 * 9 / 4); };
  for (size_t i = 0; i < 3; ++i) {
    const auto& layer = *layers[i];
    REQUIRE(ys[i].size(0) == static_cast<int64_t>(values[i].size()));
    for (int64_t row = 0; row < ys[i].size(0); ++row) {
      const double x = values[i][static_cast<size_t>(row)], dy = dys[i][static_cast<size_t>(row)];
      CHECK(ys[i][row].item<double>() == Approx((x - 4) / deviation * 2 + .5));
      CHECK(dxs[i][row].item<double>() == Approx(dx(x, dy)));
    }
    CHECK(layer.running_mean.item<double>() == Approx(.4));
    CHECK(layer.running_var.item<double>() == Approx(.9 + .1 * 50 / 3));
    CHECK(layer.running_var.equal(layers[0]->running_var));
    CHECK(layer.num_batches_tracked.item<int64_t>() == 1);
    CHECK(layer.exchange() == nullptr);
  }
  // Sums over each replica's own rows.
  const std::vector<double> dweights = {-3 / deviation, 12 / deviation, 0}, dbiases = {1, 2, 0};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(layers[i]->weight.grad().item<double>() == Approx(dweights[i]));
    CHECK(layers[i]->bias.grad().item<double>() == Approx(dbiases[i]));
  }
}

TEST_CASE("with bn sync a state goes on with any number of replicas as if nothing had changed") {
  const auto rows = source(std::make_shared<RowSource>(32));
  const std::vector<Rows> batches = {first_rows(8), {31, 4, 15, 9, 26}, {3, 1, 4, 0, 5, 9, 2}};
  const auto rate = [](TrainerOptions options) {
    options.lr = {.lr = .1};
    return options;
  };
  Trainer alone(norms(), rows, rows, rate(options_of(1)));
  Trainer two(norms(), rows, rows, rate(options_of(2)));
  for (size_t i = 0; i < 2; ++i) {
    alone.step(batches[i]);
    two.step(batches[i]);
  }
  Trainer three(norms(), rows, rows, rate(options_of(3)));
  three.load(two.state());
  alone.step(batches[2]);
  three.step(batches[2]);
  const auto expected = alone.weights(), found = three.weights(2);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    CHECK(max_difference(found[i].tensor, expected[i].tensor) <= 1e-11);
  }
  CHECK(three.evaluate().loss == Approx(alone.evaluate().loss).epsilon(1e-9));
}

TEST_CASE("an error between two batch norms, or in backward, ends the other replicas' wait for statistics") {
  const bool backward = GENERATE(false, true);
  const auto thrower = [=](const torch::Tensor& h) {
    if (h.size(0) != 3) return;  // of three replicas only rank 0 has three rows
    if (!backward) throw Mishap("in a replica");
    h.register_hook([](const torch::Tensor&) { throw Mishap("in a replica"); });
  };
  const auto rows = source(std::make_shared<RowSource>(32));
  Trainer trainer(model_factory<NormsImpl>(thrower), rows, rows, options_of(3));
  trainer.step(first_rows(6));
  const std::string expected =
      fmt::format("rank 0 (cpu): in the {} pass of step 2: in a replica", backward ? "backward" : "forward");
  CHECK_THROWS_WITH(trainer.step(first_rows(7)), expected);
  CHECK_THROWS_WITH(trainer.step(first_rows(6)), expected);
}

TEST_CASE("an error in one process ends the other's wait for statistics") {
  const auto errors = in_processes({1, 2}, options_of(1), [](int, const TrainerOptions& own) -> std::string {
    const auto thrower = [](const torch::Tensor& h) {
      if (h.size(0) == 3) throw Mishap("in a replica");
    };
    const auto rows = source(std::make_shared<RowSource>(32));
    try {
      Trainer trainer(model_factory<NormsImpl>(thrower), rows, rows, own);
      trainer.step(first_rows(7));  // rank 0 has three rows
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  });
  CHECK(errors[0] == "rank 0 (cpu): in the forward pass of step 1: in a replica");
  CHECK_THAT(errors[1], ContainsSubstring("process 0 left"));
}

TEST_CASE("with bn sync torch's own batch norms are refused by name, with any number of replicas") {
  struct OwnNorm : torch::nn::Module {
    OwnNorm() {
      features = register_module(
          "features",
          torch::nn::Sequential(torch::nn::Linear(784, 10), BatchNorm1d(10), torch::nn::BatchNorm1d(10)));
    }
    torch::Tensor forward(const torch::Tensor& X) { return features->forward(X.flatten(1)); }
    torch::nn::Sequential features = nullptr;
  };
  const int world = GENERATE(1, 2);
  const auto words =
      refusal_and_hint([&] { stepped(model_factory<OwnNorm>(), options_of(world), first_rows(4)); });
  CHECK_THAT(words, ContainsSubstring("features.2") && ContainsSubstring("torch's own") &&
                        ContainsSubstring("lockstep::BatchNorm1d"));
  CHECK_NOTHROW(stepped(model_factory<OwnNorm>(), options_of(world, BnPolicy::kRoot), first_rows(4)));
}

TEST_CASE("with bn sync a model without batch norms trains as ever, on fewer rows than replicas too") {
  struct Plain : torch::nn::Module {
    Plain() { linear = register_module("linear", torch::nn::Linear(784, 10)); }
    torch::Tensor forward(const torch::Tensor& X) {
      if (X.size(0) == 0) throw Mishap("it cannot take 0 rows");
      return linear(X.flatten(1));
    }
    torch::nn::Linear linear = nullptr;
  };
  CHECK_NOTHROW(stepped(model_factory<Plain>(), options_of(3), first_rows(2)));
}
