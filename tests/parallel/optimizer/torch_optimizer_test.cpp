// Optimizers of torch::optim that a factory gives to a Trainer: Python's numbers, and what is refused.
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/optimizer/torch_optimizer.h>
#include <lockstep/tests/parallel/optimizer/flat_memory.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// The groups of the kPython... numbers.
template <class TorchOptimizer, class TorchOptions>
OptimizerFactory in_groups(TorchOptions options) {
  return [options](std::vector<torch::Tensor> params) mutable {
    options.lr(.05);
    auto undecayed = options, slow = options;
    undecayed.weight_decay(0);
    slow.lr(.005);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (size_t i = 0; i < params.size(); ++i) {
      const auto& own = i == 0 ? options : i == 1 ? undecayed : slow;
      groups.emplace_back(std::vector{params[i]}, std::make_unique<TorchOptions>(own));
    }
    // Without defaults of its own: torch takes an option that is torch's default from here.
    return std::make_unique<TorchOptimizer>(groups, TorchOptions(.05));
  };
}

std::vector<std::pair<OptimizerFactory, PythonNumbers>> python_cases() {
  namespace optim = torch::optim;
  return {{in_groups<optim::SGD>(optim::SGDOptions(.05).momentum(.9).nesterov(true).weight_decay(.01)),
           kPythonSgd},
          {in_groups<optim::Adam>(optim::AdamOptions().weight_decay(.01)), kPythonAdam},
          {in_groups<optim::Adam>(optim::AdamOptions().weight_decay(.01).amsgrad(true)), kPythonAmsgrad},
          {in_groups<optim::AdamW>(optim::AdamWOptions().weight_decay(.1)), kPythonAdamW},
          {in_groups<optim::RMSprop>(optim::RMSpropOptions().weight_decay(.01).momentum(.5).centered(true)),
           kPythonRmsprop},
          {in_groups<optim::Adagrad>(optim::AdagradOptions().weight_decay(.01)), kPythonAdagrad}};
}

// An optimizer of another library.
struct SignOptions : torch::optim::OptimizerCloneableOptions<SignOptions> {
  double rate = .1;
  double get_lr() const override { return rate; }
  void set_lr(const double lr) override { rate = lr; }
};

class Sign : public torch::optim::Optimizer {
 public:
  explicit Sign(std::vector<torch::Tensor> params)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(params))}, std::make_unique<SignOptions>()) {}

  torch::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (auto& param : group.params()) param.sub_(param.grad().sign(), group.options().get_lr());
    }
    return {};
  }
};

TrainerOptions options_with(const OptimizerFactory& factory) {
  auto options = options_for(2);
  options.lr.lr = .01;
  options.replica.optimizer.factory = factory;
  return options;
}

template <class TorchOptimizer>
OptimizerFactory only() {
  return [](std::vector<torch::Tensor> params) { return std::make_unique<TorchOptimizer>(params); };
}

void set_trained(Trainer& trainer, const std::string& name, bool trained) {
  for (int local = 0; local < trainer.local_size(); ++local) {
    trainer.model(local).module->named_parameters()[name].requires_grad_(trained);
  }
}

std::string refusal_of_factory(const OptimizerFactory& factory) {
  auto options = options_for(2);
  options.replica.optimizer.factory = factory;
  return refusal_of([&] { make_trainer(two_layers(), options); });
}

}  // namespace

TEST_CASE("300 steps of torch's optimizers, with groups of their own, have the numbers of Python's torch") {
  for (const auto& [factory, expected] : python_cases()) {
    INFO(expected.optimizer);
    auto memory = python_memory();
    TorchOptimizer optimizer(factory);
    optimizer.hold(memory.trained({}));
    for (int step = 0; step < 300; ++step) python_step(optimizer, memory, step);
    CHECK(max_difference(memory.values(), torch::tensor(expected.values, torch::kFloat64)) < 1e-12);
    CHECK(memory.flat_gradients().count_nonzero().item<int64_t>() == 0);
  }
}

TEST_CASE("a factory's optimizer must be one that a Trainer can step, with all parameters") {
  CHECK(refusal_of_factory([](std::vector<torch::Tensor> params) {
          return std::make_unique<torch::optim::LBFGS>(params);
        }) == "LBFGS cannot be an optimizer of a Trainer: its step computes the loss several times");
  CHECK(refusal_of_factory([](auto) { return nullptr; }) == "the optimizer factory returned no optimizer");
  CHECK(refusal_of_factory([](std::vector<torch::Tensor> params) {
          params.pop_back();
          return std::make_unique<torch::optim::Adam>(params);
        }) == "torch::optim::Adam of the optimizer factory leaves out parameter outer_bias");
  CHECK_THAT(refusal_of_factory([](std::vector<torch::Tensor> params) {
               params[1] = torch::zeros({6}).requires_grad_();
               return std::make_unique<torch::optim::Adam>(params);
             }),
             ContainsSubstring("a tensor [6] that is none of the parameters it was given"));
  CHECK(refusal_of_factory([](std::vector<torch::Tensor> params) {
          return std::make_unique<torch::optim::Adam>(params, torch::optim::AdamOptions(0));
        }) == "the groups of torch::optim::Adam have no rates in parts of its own");
}

TEST_CASE("the state of another optimizer is refused, and changes nothing") {
  auto options = options_for(2);
  options.lr.lr = .01;
  options.replica.optimizer.factory = [](std::vector<torch::Tensor> params) {
    return std::make_unique<torch::optim::RMSprop>(params);
  };
  auto trainer = make_trainer(two_layers(), options);
  trainer.step(kBatches[0]);
  auto other = options;
  other.replica.optimizer.factory = [](std::vector<torch::Tensor> params) {
    return std::make_unique<torch::optim::Adagrad>(params);
  };
  auto adagrad = make_trainer(two_layers(), other);
  adagrad.step(kBatches[0]);
  const auto before = trainer.weights();
  CHECK_FALSE(refusal_of<WeightsError>([&] { trainer.load(adagrad.state()); }).empty());
  CHECK(same_tensors(trainer.weights(), before));
}

TEST_CASE("the state of an optimizer that lockstep does not know is refused; training goes on") {
  auto trainer = make_trainer(two_layers(), options_with(only<Sign>()));
  auto rmsprop = make_trainer(two_layers(), options_with(only<torch::optim::RMSprop>()));
  for (auto* each : {&trainer, &rmsprop}) each->step(kBatches[0]);
  CHECK_THAT(refusal_of([&] { trainer.state(); }), ContainsSubstring("Sign cannot be saved"));
  CHECK_THAT(refusal_of<WeightsError>([&] { trainer.load(rmsprop.state()); }),
             ContainsSubstring("Sign cannot be loaded"));
  const auto before = trainer.weights();
  trainer.step(kBatches[1]);
  CHECK_FALSE(same_tensors(trainer.weights(), before));
}

TEST_CASE("a state without the tensors of a factory's optimizer is refused, and changes nothing") {
  const auto options = options_with(only<torch::optim::RMSprop>());
  auto saved = make_trainer(two_layers(), options), trainer = make_trainer(two_layers(), options);
  saved.step(kBatches[0]);
  trainer.step(kBatches[1]);
  const auto before = trainer.state();
  auto none = saved.state(), one_less = saved.state();
  none.optimizer.clear();
  std::erase_if(one_less.optimizer, [](const auto& item) { return item.name == "square_avg.inner"; });
  REQUIRE(one_less.optimizer.size() + 1 == saved.state().optimizer.size());
  for (const auto* state : {&none, &one_less}) {
    CHECK_FALSE(refusal_of<WeightsError>([&] { trainer.load(*state); }).empty());
    CHECK(same_tensors(trainer.state().optimizer, before.optimizer));
    CHECK(same_tensors(trainer.weights(), before.model));
  }
}

TEST_CASE("parameters that are trained here and not in the state, or the other way, are refused by name") {
  const auto options = options_with(only<torch::optim::RMSprop>());
  auto all = make_trainer(two_layers(), options), fewer = make_trainer(two_layers(), options);
  set_trained(fewer, "inner", false);
  for (auto* each : {&all, &fewer}) each->step(kBatches[0]);
  CHECK(refusal_of<WeightsError>([&] { all.load(fewer.state()); }) ==
        "parameter inner was frozen when the state was saved, but is trained here");
  CHECK(refusal_of<WeightsError>([&] { fewer.load(all.state()); }) ==
        "parameter inner was trained when the state was saved, but is frozen here");
}

// Torch has made no state for it yet.
TEST_CASE("a state from before a parameter's first step goes on to the same bits") {
  const auto options = options_with(only<torch::optim::RMSprop>());
  for (const bool stepped : {false, true}) {
    INFO((stepped ? "unfrozen after a step" : "before the first step"));
    auto trainer = make_trainer(two_layers(), options), other = make_trainer(two_layers(), options);
    if (stepped) {
      set_trained(trainer, "inner", false);
      trainer.step(kBatches[0]);
      set_trained(trainer, "inner", true);
    }
    other.step(kBatches[2]);
    other.load(trainer.state());
    for (auto* each : {&trainer, &other}) each->step(kBatches[1]);
    CHECK(same_tensors(other.weights(), trainer.weights()));
    CHECK(same_tensors(other.state().optimizer, trainer.state().optimizer));
  }
}
