// Models from modules and losses.
#include <torch/nn/module.h>

#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>

using namespace lockstep;

namespace {

// Returns its input times its one weight.
struct Scaled : torch::nn::Module {
  explicit Scaled(double factor) { weight = register_parameter("weight", torch::full({}, factor)); }
  torch::Tensor forward(const torch::Tensor& X) { return X * weight; }
  torch::Tensor weight;
};

// Has no forward() of one tensor.
struct Pair : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b) { return a + b; }
};

struct WithBf16 : Scaled {
  using Scaled::Scaled;
  void use_bf16_weights(const Params& weights) { seen = weights.size(); }
  size_t seen = 0;
};

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& kind : model.metrics) names.push_back(kind.name);
  return names;
}

const Batch kOnes{{"a", torch::ones({3, 2})}, {"b", torch::full({3, 2}, 5.f), Role::kTarget}};

}  // namespace

TEST_CASE("without a loss a model classifies its one input") {
  const auto model = model_factory<Scaled>(2.)();
  CHECK(names_of(model) == std::vector<std::string>{"top1", "top5"});
  const auto logits = torch::tensor({{0.f, 1.f, 0.f}});
  const auto outcome = model.loss_sum({logits, torch::tensor({1}, torch::kInt64)});
  CHECK(outcome.loss.equal(classification_outcome(logits * 2, torch::tensor({1}, torch::kInt64)).loss));
  CHECK_FALSE(model.weight);
  CHECK_FALSE(model.use_bf16_weights);
}

TEST_CASE("a loss of your own gets the net and the batch, and its metrics are declared beside it") {
  const auto factory =
      model_factory<Scaled>(2.)
          .loss([](Scaled& net, const Batch& in) {
            const auto error = net.forward(in["a"]) - in["b"];
            return Outcome{error.square().sum(), {error.abs().sum(), error.numel() * net.weight}};
          })
          .metric("mae")
          .metric("size", {.name = "another", .type = MetricType::kMean})
          .weight([](const Batch& in) { return in["b"].sum(); });
  const auto model = factory();
  CHECK(names_of(model) == std::vector<std::string>{"mae", "size"});
  const auto outcome = model.loss_sum(kOnes);
  CHECK(outcome.loss.item<float>() == 54);
  CHECK(outcome.metrics[0].sum.item<float>() == 18);
  CHECK(model.weight(kOnes).item<float>() == 30);
  CHECK(factory().module != model.module);
}

TEST_CASE("a loss may be a tensor alone, and another loss takes the place of metrics and weight") {
  auto factory = model_factory<Scaled>(2.).loss(token_cross_entropy());
  CHECK(names_of(factory()) == std::vector<std::string>{"perplexity", "top1"});
  CHECK(factory().weight(Batch(torch::ones({1, 2, 3}), torch::tensor({{1, -100}}))).item<int64_t>() == 1);
  factory.loss([](Scaled& net, const Batch& in) { return net.forward(in.input()).sum(); });
  const auto model = factory();
  CHECK(model.metrics.empty());
  CHECK_FALSE(model.weight);
  CHECK(model.loss_sum(kOnes).loss.item<float>() == 12);
  CHECK(names_of(factory.loss(mse())()) == std::vector<std::string>{"mae", "rmse"});
}

TEST_CASE("metric() and weight() may come before the loss, and no loss takes them away") {
  auto factory = model_factory<Scaled>(2.)
                     .weight([](const Batch& in) { return in["b"].sum(); })
                     .metric("size")
                     .loss([](Scaled& net, const Batch& in) {
                       return Outcome{net.forward(in["a"]).sum(), {in["a"].numel() * net.weight}};
                     });
  CHECK(names_of(factory()) == std::vector<std::string>{"size"});
  CHECK(factory().weight(kOnes).item<float>() == 30);
  CHECK(factory.loss(token_cross_entropy())().weight(kOnes).item<float>() == 30);
}

TEST_CASE("the output is the net's for the one input, or a function's, also for a loss that is ready") {
  auto factory = model_factory<Scaled>(2.);
  const auto a = kOnes["a"], b = kOnes["b"];
  CHECK(factory().output({{"a", a}}).equal(a * 2));
  CHECK(factory.loss([](Scaled&, const Batch& in) { return in["b"].sum(); })().output(kOnes).equal(a * 2));
  factory.output([](Scaled& net, const Batch& in) { return net.forward(in["a"]) + 1; });
  CHECK(factory().output(kOnes).equal(a * 2 + 1));
  CHECK(factory.loss(mse())().loss_sum(kOnes).loss.item<float>() == 3 * 4);  // 3 rows, each (5 - 3)^2
  auto pair = model_factory<Pair>().loss(mse());
  CHECK_FALSE(pair().output);
  CHECK_FALSE(pair().loss_sum);
  pair.output([](Pair& net, const Batch& in) { return net.forward(in["a"], in["a"]); });
  CHECK(pair().output(kOnes).equal(a + a));
  CHECK(pair().loss_sum(kOnes).loss.item<float>() == 3 * 9);
}

TEST_CASE("a net without a forward pass of one tensor has no loss until it is given one, or an output") {
  CHECK_FALSE(model_factory<Pair>()().loss_sum);
  const auto classifies = model_factory<Pair>().output(
      [](Pair& net, const Batch& in) { return net.forward(in.input(), in.input()); })();
  CHECK(names_of(classifies) == std::vector<std::string>{"top1", "top5"});
  const auto logits = torch::tensor({{0.f, 1.f, 0.f}}), labels = torch::tensor({1}, torch::kInt64);
  CHECK(classifies.loss_sum({logits, labels}).loss.equal(classification_outcome(logits * 2, labels).loss));
  const auto model = model_factory<Pair>().loss(
      [](Pair& net, const Batch& in) { return net.forward(in["a"], in["b"]).sum(); })();
  CHECK(model.loss_sum(kOnes).loss.item<float>() == 36);
}

TEST_CASE("a net that computes with bf16 weights makes a model that does") {
  const auto model = model_factory<WithBf16>(1.)();
  model.use_bf16_weights({torch::ones({1})});
  CHECK(model.module->as<WithBf16>()->seen == 1);
}
