// load_weights_into(): all tensors or none.
#include <torch/nn/module.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/models/lenet.h>
#include <lockstep/models/load_weights.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> result;
  for (const auto& item : module.named_parameters()) {
    result.push_back({item.key(), item.value().detach().clone()});
  }
  for (const auto& item : module.named_buffers()) result.push_back({item.key(), item.value().clone()});
  return result;
}

bool same(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || !a[i].tensor.equal(b[i].tensor)) return false;
  }
  return true;
}

NamedTensor& named(std::vector<NamedTensor>& weights, const std::string& name) {
  return *std::find_if(weights.begin(), weights.end(), [&](const auto& item) { return item.name == name; });
}

ResNet18 residual(uint64_t seed) {
  ResNet18Options options;
  options.width = 4;
  options.seed = seed;
  return ResNet18(options);
}

}  // namespace

TEST_CASE("weights are loaded into parameters and buffers, in any order") {
  auto from = residual(1), to = residual(2);
  from->forward(torch::rand({3, 1, 28, 28}));  // moves the running statistics and counters
  auto weights = tensors_of(*from);
  REQUIRE_FALSE(same(tensors_of(*to), weights));
  const auto expected = tensors_of(*from);
  std::reverse(weights.begin(), weights.end());
  load_weights_into(*to, weights);
  CHECK(same(tensors_of(*to), expected));
  for (const auto& param : to->parameters()) {
    CHECK(param.requires_grad());
    CHECK(param.is_leaf());
  }
  // Loading copies: later changes of the source do not matter.
  for (auto& weight : weights) weight.tensor.zero_();
  CHECK(same(tensors_of(*to), expected));
}

TEST_CASE("dtypes and strides are the module's own") {
  auto to = LeNet(0);
  auto weights = tensors_of(*LeNet(1));
  const auto expected = weights;
  for (auto& weight : weights) weight.tensor = weight.tensor.to(torch::kFloat64);
  named(weights, "W3").tensor = named(weights, "W3").tensor.t().contiguous().t();
  load_weights_into(*to, weights);
  CHECK(same(tensors_of(*to), expected));
  for (const auto& param : to->parameters()) CHECK(param.is_contiguous());

  auto net = residual(0);
  auto counted = tensors_of(*net);
  for (auto& weight : counted) {
    if (weight.name.ends_with("num_batches_tracked")) weight.tensor = torch::full({}, 7, torch::kInt32);
  }
  load_weights_into(*net, counted);
  for (const auto& item : net->named_buffers()) {
    if (!item.key().ends_with("num_batches_tracked")) continue;
    CHECK(item.value().scalar_type() == torch::kInt64);
    CHECK(item.value().item<int64_t>() == 7);
  }
}

TEST_CASE("tied weights are loaded from one of their names, or from all if they agree") {
  // Python's safetensors keeps one name of a tied module, and its state_dict all names.
  const auto tied = [] {
    torch::nn::Module net;
    const auto layer = net.register_module("enc", std::make_shared<torch::nn::Module>());
    net.register_module("dec", layer);
    layer->register_parameter("weight", torch::zeros({2, 3}));
    layer->register_buffer("mean", torch::zeros({3}));
    net.register_parameter("bias", torch::zeros({4}));
    return net;
  };
  const auto weight = torch::arange(6, torch::kFloat32).view({2, 3});
  const auto mean = torch::full({3}, 7.F), bias = torch::full({4}, 9.F);
  const std::vector<NamedTensor> first = {{"enc.weight", weight}, {"enc.mean", mean}, {"bias", bias}};
  const std::vector<NamedTensor> other = {{"bias", bias}, {"dec.mean", mean}, {"dec.weight", weight}};
  auto all = first;
  all.insert(all.end(), {{"dec.mean", mean.clone()}, {"dec.weight", weight.clone()}});
  for (const auto& weights : {first, other, all}) {
    auto net = tied();
    load_weights_into(net, weights);
    CHECK(net.named_parameters()["dec.weight"].equal(weight));
    CHECK(net.named_buffers()["enc.mean"].equal(mean));
    CHECK(net.named_parameters()["bias"].equal(bias));
  }
  auto net = tied();
  all.back().tensor[1][2] = 8;
  CHECK_THROWS_WITH(load_weights_into(net, all),
                    ContainsSubstring("enc.weight and dec.weight are one tensor"));
  auto twice = first;
  twice.push_back(first.front());
  CHECK_THROWS_WITH(load_weights_into(net, twice), ContainsSubstring("two tensors named enc.weight"));
  const std::vector<NamedTensor> none = {{"enc.mean", mean}, {"bias", bias}};
  CHECK_THROWS_AS(load_weights_into(net, none), WeightsError);
  for (const auto& param : net.parameters()) CHECK(param.eq(0).all().item<bool>());
}

TEST_CASE("other names or shapes are refused, and nothing is changed") {
  auto to = LeNet(0);
  const auto before = tensors_of(*to);
  const auto good = tensors_of(*LeNet(1));
  const auto refused = [&](const auto& change, const std::string& says) {
    auto weights = good;
    change(weights);
    INFO(says);
    CHECK_THAT(refusal_of<WeightsError>([&] { load_weights_into(*to, weights); }), ContainsSubstring(says));
    CHECK(same(tensors_of(*to), before));
  };
  refused([](auto& weights) { weights.pop_back(); },
          "1 of the model's 8 parameters and buffers have no weights");
  refused([](auto& weights) { weights.clear(); },
          "8 of the model's 8 parameters and buffers have no weights");
  refused([](auto& weights) { weights.push_back({"fc.weight", torch::zeros({2})}); }, "named fc.weight");
  refused([](auto& weights) { weights.push_back(weights.front()); }, "two tensors named W1");
  refused([](auto& weights) { weights.back().name += "x"; }, "no parameter named");
  refused(
      [](auto& weights) {
        named(weights, "W4").tensor = torch::zeros({10, 128});
      },
      "W4 has shape [10, 128], the model's has [128, 10]");
  refused([](auto& weights) { named(weights, "b4").tensor = torch::zeros({1}); },  // copy_ would broadcast it
          "b4 has shape [1], the model's has [10]");
  load_weights_into(*to, good);
  CHECK(same(tensors_of(*to), good));
}

TEST_CASE("weights of a dtype that the model's cannot hold are refused by name, others are converted") {
  struct Counted : torch::nn::Module {
    Counted() {
      weight = register_parameter("weight", torch::zeros({2}));
      count = register_buffer("count", torch::zeros({2}, torch::kInt64));
      mask = register_buffer("mask", torch::zeros({2}, torch::kBool));
    }
    torch::Tensor weight, count, mask;
  };
  Counted to;
  const auto load = [&](torch::ScalarType weight, torch::ScalarType count, torch::ScalarType mask) {
    const auto ones = [](torch::ScalarType dtype) { return torch::ones({2}).to(dtype); };
    load_weights_into(
        to, std::vector<NamedTensor>{{"weight", ones(weight)}, {"count", ones(count)}, {"mask", ones(mask)}});
  };
  struct Case {
    torch::ScalarType weight, count, mask;
    const char* why;
  };
  for (const auto& [weight, count, mask, why] : std::vector<Case>{
           {torch::kComplexFloat, torch::kInt64, torch::kBool,
            "weight is of ComplexFloat, the model's is of Float"},
           {torch::kFloat, torch::kFloat, torch::kBool, "count is of Float, the model's is of Long"},
           {torch::kFloat, torch::kInt64, torch::kUInt8, "mask is of Byte, the model's is of Bool"}}) {
    CHECK_THROWS_WITH(load(weight, count, mask), ContainsSubstring(why));
    CHECK(to.weight.sum().item<double>() == 0);
  }
  load(torch::kDouble, torch::kInt32, torch::kBool);
  CHECK(to.weight.sum().item<double>() == 2);
  CHECK(to.count.sum().item<int64_t>() == 2);
}

TEST_CASE("names with the prefix of a wrapper are refused, and the hint says how to remove it") {
  const auto before = tensors_of(*LeNet(0));
  auto to = LeNet(0);
  const auto refusal = [&](const std::vector<NamedTensor>& weights) {
    const auto words = refusal_and_hint<WeightsError>([&] { load_weights_into(*to, weights); });
    CHECK(same(tensors_of(*to), before));
    return words;
  };
  for (const std::string prefix : {"module.", "_orig_mod.", "module._orig_mod.", "model.", "net.0."}) {
    INFO(prefix);
    auto weights = tensors_of(*LeNet(1));
    for (auto& weight : weights) weight.name = prefix + weight.name;
    CHECK_THAT(refusal(weights), ContainsSubstring("all names begin with \"" + prefix + "\"") &&
                                     ContainsSubstring("removeprefix(\"" + prefix + "\")"));

    weights.back().name = "module.other";  // now they are of another model
    CHECK_THAT(refusal(weights), ContainsSubstring("another model"));
  }
}

TEST_CASE("the prefix of a wrapper is seen before tied weights, too") {
  struct Tied : torch::nn::Module {
    Tied() {
      enc = register_module("enc", torch::nn::Linear(2, 2));
      register_module("dec", enc);
    }
    torch::nn::Linear enc{nullptr};
  };
  Tied to;
  for (const auto& layers : std::vector<std::vector<std::string>>{{"enc", "dec"}, {"dec"}}) {
    std::vector<NamedTensor> weights;
    for (const auto& layer : layers) {
      weights.push_back({"module." + layer + ".weight", torch::ones({2, 2})});
      weights.push_back({"module." + layer + ".bias", torch::ones({2})});
    }
    CHECK_THROWS_WITH(load_weights_into(to, weights), ContainsSubstring("all names begin with \"module.\""));
  }
}

TEST_CASE("a model whose own names begin like those of a wrapper takes its weights") {
  struct Wrapping : torch::nn::Module {
    Wrapping() { module = register_module("module", torch::nn::Linear(3, 2)); }
    torch::nn::Linear module{nullptr};
  };
  const Wrapping from;
  Wrapping to;
  load_weights_into(to, tensors_of(from));
  CHECK(same(tensors_of(to), tensors_of(from)));
}
