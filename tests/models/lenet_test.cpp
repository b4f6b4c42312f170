
#include <lockstep/tests/catch.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <lockstep/models/lenet.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Gives the layer these parameters. layer: a torch::nn::Conv2d or Linear
template <typename Layer>
Layer with(Layer layer, const torch::Tensor& weight, const torch::Tensor& bias) {
  layer->weight.set_data(weight.detach());
  layer->bias.set_data(bias.detach());
  return layer;
}

// X [rows, channels, height, width]. Returns the logits. torch's linear layers hold their weights transposed.
torch::Tensor by_torchs_layers(const Params& params, const torch::Tensor& X) {
  namespace nn = torch::nn;
  auto conv1 = with(nn::Conv2d(X.size(1), 20, 3), params[0], params[1]);
  auto conv2 = with(nn::Conv2d(20, 50, 5), params[2], params[3]);
  auto hidden = with(nn::Linear(params[4].size(0), 128), params[4].t(), params[5]);
  auto out = with(nn::Linear(128, params[6].size(1)), params[6].t(), params[7]);
  nn::AvgPool2d pool(2);
  const auto features = pool(conv2(pool(conv1(X).relu())).relu());
  return out(hidden(features.flatten(1)).relu());
}

}  // namespace

TEST_CASE("the scratch LeNet has the chapter's eight tensors and 129,068 values") {
  const LeNet net(0);
  const auto params = net->named_parameters();
  const std::vector<std::pair<std::string, std::vector<int64_t>>> chapter = {
      {"W1", {20, 1, 3, 3}}, {"b1", {20}},  {"W2", {50, 20, 5, 5}}, {"b2", {50}},
      {"W3", {800, 128}},    {"b3", {128}}, {"W4", {128, 10}},      {"b4", {10}}};
  REQUIRE(params.size() == chapter.size());
  int64_t count = 0;
  for (size_t i = 0; i < chapter.size(); ++i) {
    INFO(chapter[i].first);
    CHECK(params[i].key() == chapter[i].first);
    CHECK(params[i].value().sizes() == chapter[i].second);
    CHECK(params[i].value().requires_grad());
    count += params[i].value().numel();
  }
  CHECK(count == 129'068);
}

TEST_CASE("a network of another shape computes what torch's layers compute") {
  const LeNetShape shape{.channels = 3, .height = 32, .width = 21, .classes = 7};
  CHECK(shape.features() == 500);  // 50 x 5 x 2
  CHECK(LeNetShape{.height = 14, .width = 15}.features() == 50);
  CHECK(LeNetShape{.height = 13}.features() == 0);
  CHECK(LeNetShape{.height = 29, .width = 29}.features() == 800);
  LeNet net(0, torch::kFloat32, Kernels::kAuto, shape);
  torch::manual_seed(1);
  const auto X = torch::rand({5, 3, 32, 21});
  const auto logits = net->forward(X);
  CHECK(logits.sizes() == torch::IntArrayRef({5, 7}));
  CHECK(torch::allclose(logits, by_torchs_layers(net->parameters(), X), 1e-5, 1e-8));
  CHECK_THROWS_AS(LeNetImpl(0, torch::kFloat32, Kernels::kAuto, {.height = 13}), UsageError);
}

TEST_CASE("weights are N(0, 1) x .01 and biases zero") {
  const LeNet net(3);
  for (const auto& item : net->named_parameters()) {
    INFO(item.key());
    const auto& value = item.value();
    if (value.dim() == 1) {
      CHECK(max_abs(value) == 0);
    } else {
      // The standard error of a deviation from n draws is about sigma / sqrt(2 n). Five of them are allowed;
      // W1 has 180 draws.
      const double n = static_cast<double>(value.numel());
      CHECK(std::abs(value.std().item<double>() - .01) < 5 * .01 / std::sqrt(2 * n));
      CHECK(std::abs(value.mean().item<double>()) < 5 * .01 / std::sqrt(n));
    }
  }
}

TEST_CASE("the weights depend on the seed only, not on the global generator") {
  torch::manual_seed(1);
  const LeNet a(7);
  torch::manual_seed(2);
  const LeNet b(7);
  const LeNet c(8);
  for (size_t i = 0; i < 8; i += 2) {
    CHECK(a->parameters()[i].equal(b->parameters()[i]));
    CHECK_FALSE(a->parameters()[i].equal(c->parameters()[i]));
  }
  torch::manual_seed(5);
  const auto expected = torch::rand({3});
  torch::manual_seed(5);
  const LeNet d(9);  // draws nothing from the global generator
  CHECK(torch::rand({3}).equal(expected));
}

TEST_CASE("a double network starts from the float network's values") {
  const LeNet single(4), twice(4, torch::kFloat64);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(twice->parameters()[i].scalar_type() == torch::kFloat64);
    CHECK(twice->parameters()[i].equal(single->parameters()[i].to(torch::kFloat64)));
  }
}

TEST_CASE("forward equals the network of torch's own layers") {
  LeNet net(0, torch::kFloat64);
  // Large weights, so that ReLUs cut on both sides.
  for (auto& param : net->parameters()) param.detach().add_(torch::randn_like(param) * .2);
  for (const int64_t rows : {1, 2, 17}) {
    const auto X = torch::rand({rows, 1, 28, 28}, torch::kFloat64);
    const auto logits = net->forward(X);
    CHECK(logits.sizes() == std::vector<int64_t>{rows, 10});
    const auto expected = by_torchs_layers(net->parameters(), X);
    CHECK(max_difference(logits, expected) <= 1e-12 * max_abs(expected));
  }
  CHECK(net->forward(torch::rand({0, 1, 28, 28}, torch::kFloat64)).sizes() == std::vector<int64_t>{0, 10});
}
