// Parameters whose memory is replaced while a Trainer computes on it.
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Action = std::function<void(torch::nn::Module&)>;

void load_archive(torch::nn::Module& module) {
  std::stringstream file;
  torch::serialize::OutputArchive saved;
  two_layers()().module->save(saved);
  saved.save_to(file);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  module.load(archive);
}

void replace_one(torch::nn::Module& module) {
  auto param = module.named_parameters()["outer"];
  param.set_data(param.detach().clone());
}

void reshape_one(torch::nn::Module& module) {
  auto param = module.named_parameters()["outer"];
  param.set_data(param.detach().view({-1}));  // in the same memory
}

struct Way {
  std::string name;
  std::function<void(TrainerOptions&)> change = [](auto&) {};
};

std::vector<Way> ways_to_step() {
  return {{"eager"},
          {"bucketed", [](auto& options) { options.replica.sync.mode = SyncMode::kBucketed; }},
          {"micro-batches", [](auto& options) { options.accumulate = 2; }},
          {"invariant", [](auto& options) { options.replica.invariant = true; }},
          {"fp64", [](auto& options) { options.replica.precision = Precision::kFp64; }},
          {"two in flight", [](auto& options) { options.in_flight = 2; }}};
}

}  // namespace

TEST_CASE("every call that would use a replaced parameter names it, on whichever replica it is") {
  const int world = GENERATE(1, 2);
  const Rows one_row = {3};  // the last of two replicas has none
  const auto calls = std::vector<std::pair<std::string, std::function<void(Trainer&)>>>{
      {"step", [](auto& trainer) { trainer.step(kBatches[1]), trainer.synchronize(); }},
      {"step without rows", [&](auto& trainer) { trainer.step(one_row), trainer.synchronize(); }},
      {"evaluate", [](auto& trainer) { trainer.evaluate(); }},
      {"weights", [](auto& trainer) { trainer.weights(0); }},
      {"state", [](auto& trainer) { trainer.state(); }},
      {"load", [](auto& trainer) { trainer.load({}); }},
      {"check_sync", [](auto& trainer) { trainer.check_sync(); }}};
  const auto actions = std::vector<std::pair<std::string, Action>>{
      {"inner", load_archive}, {"outer", replace_one}, {"outer", reshape_one}, {"inner", [](auto& module) {
                                                                                  module.to(torch::kFloat16);
                                                                                }}};
  for (const auto& way : ways_to_step()) {
    auto options = options_for(world);
    way.change(options);
    for (const auto& [param, action] : actions) {
      // torch itself refuses to load an archive of floats into doubles.
      if (way.name == "fp64" && &param == &actions.front().first) continue;
      for (const auto& [name, call] : calls) {
        if (way.name != "eager" && !name.starts_with("step")) continue;  // does not depend on the way
        INFO(way.name << ", " << name);
        auto trainer = make_trainer(two_layers(), options);
        trainer.step(kBatches[0]);
        trainer.synchronize();
        action(*trainer.model(world - 1).module);
        const auto what = refusal_of([&, &use = call] { use(trainer); });
        CHECK_THAT(what, ContainsSubstring("replica " + std::to_string(world - 1) + ": parameter " + param +
                                           " has other memory"));
      }
    }
  }
}

TEST_CASE("a parameter that is replaced while another one is frozen is named, and not taken over") {
  const int world = GENERATE(1, 2);
  auto trainer = make_trainer(two_layers(), options_for(world));
  trainer.step(kBatches[0]);
  trainer.synchronize();
  for (int local = 0; local < world; ++local) {
    trainer.model(local).module->named_parameters()["inner"].requires_grad_(false);
  }
  replace_one(*trainer.model(world - 1).module);
  CHECK_THAT(
      refusal_of([&] { trainer.step(kBatches[1]); }),
      ContainsSubstring("replica " + std::to_string(world - 1) + ": parameter outer has other memory"));
}

TEST_CASE("a parameter that a forward pass replaces ends that step, though torch may fail first") {
  const int world = GENERATE(1, 2);
  const auto actions = std::vector<std::pair<std::string, Action>>{
      {"outer", replace_one}, {"inner", [](auto& module) { module.to(torch::kFloat64); }}};
  for (const auto& way : ways_to_step()) {
    for (const auto& [param, action] : actions) {
      INFO(way.name << ", " << param);
      if (way.name == "fp64" && param == "inner") continue;  // is double already
      torch::nn::Module* module = nullptr;  // of the first replica, in whose thread it is replaced
      int built = 0;
      const ModelFactory factory = [&, &act = action] {
        const bool first = built++ == 0;
        return two_layers([&, first](const torch::Tensor&) {
          if (first) act(*module);
        })();
      };
      auto options = options_for(world);
      way.change(options);
      auto trainer = make_trainer(factory, options);
      module = trainer.model(0).module.get();
      // With two in flight the next call reports it, as all errors of steps.
      const auto what = refusal_of([&] { trainer.step(kBatches[0]), trainer.synchronize(); });
      CHECK_THAT(what, ContainsSubstring("parameter " + param + " has other memory"));
    }
  }
}

TEST_CASE("a layer that is registered after the trainer was built, in whatever step, is refused by name") {
  const int world = GENERATE(1, 2);
  const Action add_layer = [](auto& module) { module.register_module("extra", torch::nn::Linear(2, 2)); };
  const Action add_one = [](auto& module) { module.register_parameter("extra", torch::ones({2})); };
  const auto step = [](Trainer& trainer) { trainer.step(kBatches[0]), trainer.synchronize(); };
  for (const auto& way : ways_to_step()) {
    INFO(way.name);
    auto options = options_for(world);
    way.change(options);
    for (const auto& [action, name] : {std::pair{add_layer, "extra.weight"}, {add_one, "extra"}}) {
      auto trainer = make_trainer(two_layers(), options);
      step(trainer);
      action(*trainer.model(world - 1).module);
      CHECK_THAT(refusal_of([&] { step(trainer); }),
                 ContainsSubstring("replica " + std::to_string(world - 1) + ": parameter " + name +
                                   " was registered after"));
    }
    const ModelFactory lazy = [&] {  // in its first forward pass
      auto model = two_layers()();
      model.loss_sum = [&, loss = model.loss_sum, module = model.module](const Batch& rows) {
        if (!module->named_children().contains("extra")) add_layer(*module);
        return loss(rows);
      };
      return model;
    };
    auto trainer = make_trainer(lazy, options);
    CHECK_THAT(refusal_of([&] { step(trainer); }),
               ContainsSubstring("parameter extra.weight was registered after"));
  }
}

TEST_CASE("weights that are written in place are trained from there") {
  auto options = options_for(2);
  options.replica.optimizer.momentum = .9;
  const auto write = [](torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    for (auto& param : module.parameters()) param.copy_(param.mul(.5));
  };
  auto trainer = make_trainer(two_layers(), options);
  for (int local = 0; local < 2; ++local) write(*trainer.model(local).module);
  auto expected = make_trainer(
      [&] {
        auto model = two_layers()();
        write(*model.module);
        return model;
      },
      options);
  for (const auto& batch : kBatches) {
    trainer.step(batch);
    expected.step(batch);
  }
  trainer.check_sync();
  check_same_tensors(trainer.weights(1), expected.weights(1));
}

TEST_CASE("zero_grad() between two steps, or in each forward pass, changes no step") {
  const int world = GENERATE(1, 2);
  for (const auto& way : ways_to_step()) {
    INFO(way.name << ", " << world << " replicas");
    auto options = options_for(world);
    options.replica.optimizer.momentum = .9;
    way.change(options);
    auto expected = make_trainer(two_layers(), options), between = make_trainer(two_layers(), options),
         within = make_trainer(zeroing_gradients(two_layers()), options);
    for (const auto& batch : kBatches) {
      for (int local = 0; local < world; ++local) between.model(local).module->zero_grad();
      for (auto* trainer : {&expected, &between, &within}) trainer->step(batch);
    }
    const auto weights = expected.weights(world - 1);
    CHECK_FALSE(same_tensors(weights, make_trainer(two_layers(), options).weights()));
    CHECK(same_tensors(between.weights(world - 1), weights));
    CHECK(same_tensors(within.weights(world - 1), weights));
  }
}

TEST_CASE("a trainer refuses sparse buffers by name") {
  const int world = GENERATE(1, 2);
  for (const auto& buffer : {torch::eye(3).to_sparse(), torch::eye(3).to_sparse_csr()}) {
    const ModelFactory factory = [&] {
      auto model = two_layers()();
      model.module->register_buffer("graph", buffer.clone());
      return model;
    };
    CHECK_THAT(refusal_of([&] { make_trainer(factory, options_for(world)); }),
               ContainsSubstring("graph is a sparse tensor"));
  }
}

TEST_CASE("expanded buffers train, evaluate, and go on from a state") {
  const int world = GENERATE(1, 2);
  const ModelFactory factory = [] {
    auto model = two_layers()();
    model.module->register_buffer("mask", torch::ones({1}).expand({8}));
    model.module->register_buffer("pairs", torch::arange(3).unsqueeze(1).expand({3, 2}));
    return model;
  };
  const auto options = options_for(world);
  auto trainer = make_trainer(factory, options), loaded = make_trainer(factory, options);
  trainer.step(kBatches[0]);
  trainer.evaluate();
  loaded.load(trainer.state());
  trainer.step(kBatches[1]);
  loaded.step(kBatches[1]);
  const auto weights = trainer.weights(world - 1);
  CHECK(same_tensors(loaded.weights(world - 1), weights));
  for (const auto& [name, tensor] : weights) {
    if (name == "mask") CHECK(tensor.equal(torch::ones({8})));
    if (name == "pairs") CHECK(tensor.equal(torch::tensor({{0, 0}, {1, 1}, {2, 2}})));
  }
}

namespace {

// Two layers whose weights the test ties in some way.
class TwoWeightsImpl : public torch::nn::Module {
 public:
  explicit TwoWeightsImpl(const std::function<void(TwoWeightsImpl&)>& tie) {
    a = register_module("a", torch::nn::Linear(784, 10));
    b = register_module("b", torch::nn::Linear(784, 10));
    tie(*this);
  }
  torch::Tensor forward(const torch::Tensor& X) { return a(X.flatten(1)) + b(X.flatten(1)); }

  torch::nn::Linear a{nullptr}, b{nullptr};
};

}  // namespace

TEST_CASE("a trainer refuses trained parameters that share memory with other tensors, with both names") {
  const auto refused = [](const std::function<void(TwoWeightsImpl&)>& tie) {
    return refusal_of([&] { make_trainer(model_factory<TwoWeightsImpl>(tie), options_for(2)); });
  };
  const auto share = [](TwoWeightsImpl& net) { net.b->weight.set_data(net.a->weight.data()); };
  CHECK(refused([](auto&) {}).empty());
  CHECK_THAT(refused(share), ContainsSubstring("a.weight and b.weight are two tensors in the same memory"));
  CHECK_THAT(refused([&](auto& net) {
               share(net);
               net.a->weight.requires_grad_(false);
             }),
             ContainsSubstring("a.weight and b.weight are"));
  CHECK(refused([&](auto& net) {
          share(net);
          net.a->weight.requires_grad_(false);
          net.b->weight.requires_grad_(false);
        }).empty());
  CHECK_THAT(refused([](auto& net) { net.register_buffer("copy", net.a->bias.detach().slice(0, 0, 3)); }),
             ContainsSubstring("a.bias and copy are"));
  CHECK(refused([](auto& net) {  // one storage, but no element twice
          const auto both = torch::randn({2, 10, 784});
          net.a->weight.set_data(both[0]);
          net.b->weight.set_data(both[1]);
        })
            .empty());
  for (const int64_t first : {700, 783, 784}) {  // columns of one matrix; from 784 on they are b's alone
    const auto what = refused([&](auto& net) {
      const auto both = torch::randn({10, 1568});
      net.a->weight.set_data(both.narrow(1, 0, 784));
      net.b->weight.set_data(both.narrow(1, first, 784));
    });
    INFO("from column " << first);
    CHECK(what.empty() == (first == 784));
    if (first < 784) CHECK_THAT(what, ContainsSubstring("a.weight and b.weight are"));
  }
  const auto views = std::vector<std::function<torch::Tensor(const torch::Tensor& weight)>>{
      [](auto& weight) { return weight.select(1, 3); },
      [](auto& weight) {
        return weight.select(1, 3).expand({2, 10});
      },
      [](auto& weight) { return weight.view(torch::kInt64).select(1, 3); },
      [](auto& weight) { return weight.view(torch::kInt16).select(1, 1567); }};
  for (const auto& view : views) {
    CHECK_THAT(refused([&](auto& net) { net.register_buffer("view", view(net.a->weight.detach())); }),
               ContainsSubstring("a.weight and view are"));
  }
  // Frozen tensors may share memory, until one of them is trained.
  auto trainer = make_trainer(model_factory<TwoWeightsImpl>([&](auto& net) {
                                share(net);
                                net.a->weight.requires_grad_(false);
                                net.b->weight.requires_grad_(false);
                              }),
                              options_for(1));
  trainer.model(0).module->named_parameters()["b.weight"].requires_grad_();
  CHECK_THAT(refusal_of([&] { trainer.step(kBatches[0]); }),
             ContainsSubstring("a.weight and b.weight are two"));
}
