#include <lockstep/parallel/optimizer/named_state.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <map>
#include <memory>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

// Each calls visit(name, field) for the fields of one parameter's state: tensors, and the number of steps.
template <class Visit>
void visit_fields(torch::optim::SGDParamState& state, const Visit& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}

template <class AdamState, class Visit>
requires requires(AdamState& state) { state.max_exp_avg_sq(); }
void visit_fields(AdamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <class Visit>
void visit_fields(torch::optim::RMSpropParamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}

template <class Visit>
void visit_fields(torch::optim::AdagradParamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

// Calls action with a new state of the optimizer's kind. False: it is of another kind.
template <class Kind, class State, class Action>
bool if_kind(Optimizer& optimizer, const Action& action) {
  if (!dynamic_cast<Kind*>(&optimizer)) return false;
  action(std::make_unique<State>());
  return true;
}

template <class Action>
void by_kind(Optimizer& optimizer, const Action& action) {
  using namespace torch::optim;
  const bool known = if_kind<SGD, SGDParamState>(optimizer, action) ||
                     if_kind<Adam, AdamParamState>(optimizer, action) ||
                     if_kind<AdamW, AdamWParamState>(optimizer, action) ||
                     if_kind<RMSprop, RMSpropParamState>(optimizer, action) ||
                     if_kind<Adagrad, AdagradParamState>(optimizer, action);
  if (known) return;
  throw UsageError("a checkpoint cannot hold the state of this optimizer",
                   "use SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim, or a class derived from them");
}

template <class Action>
void for_each_param(Optimizer& optimizer, const Action& action) {
  for (auto& group : optimizer.param_groups()) {
    for (auto& param : group.params()) action(param);
  }
}

torch::Tensor as_tensor(const torch::Tensor& field) { return field; }
torch::Tensor as_tensor(int64_t steps) { return torch::full({}, steps, torch::kInt64); }

torch::Tensor rates_of(Optimizer& optimizer) {
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return torch::tensor(rates, torch::kFloat64);
}

// The tensor that a field of this parameter would be replaced by: its shape and dtype.
torch::Tensor like_field(const torch::Tensor& param, const torch::Tensor&) { return param; }
torch::Tensor like_field(const torch::Tensor&, int64_t steps) { return as_tensor(steps); }

void set_field(torch::Tensor& field, const torch::Tensor& param, const torch::Tensor& kept) {
  field = torch::empty_like(param, param.options().requires_grad(false)).copy_(kept);
}
void set_field(int64_t& field, const torch::Tensor&, const torch::Tensor& kept) {
  field = kept.item<int64_t>();
}

using ByName = std::map<std::string, torch::Tensor>;

ByName tensors_by_name(const std::vector<NamedTensor>& state) {
  ByName result;
  for (const auto& [name, tensor] : state) result.emplace(name, tensor);
  return result;
}

std::string form_of(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", torch::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace

std::vector<NamedTensor> optimizer_state(Optimizer& optimizer, const NameOfParameter& name_of) {
  std::vector<NamedTensor> result = {{"lr", rates_of(optimizer)}};
  by_kind(optimizer, [&]<class State>(std::unique_ptr<State>) {
    for_each_param(optimizer, [&](const torch::Tensor& param) {
      const auto name = name_of(param);
      const auto found = optimizer.state().find(param.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) return;
      visit_fields(static_cast<State&>(*found->second), [&](const char* field, auto& value) {
        if (const auto tensor = as_tensor(value); tensor.defined()) {
          result.push_back({fmt::format("{}.{}", field, name), tensor});
        }
      });
    });
  });
  return result;
}

void require_optimizer_state(Optimizer& optimizer, const NameOfParameter& name_of,
                             const std::vector<NamedTensor>& state, const std::string& whose) {
  const auto kept = tensors_by_name(state);
  std::map<std::string, torch::Tensor> like = {{"lr", rates_of(optimizer)}};
  by_kind(optimizer, [&](auto fresh) {
    for_each_param(optimizer, [&](const torch::Tensor& param) {
      const auto name = name_of(param);
      visit_fields(*fresh, [&](const char* field, auto& value) {
        like.emplace(fmt::format("{}.{}", field, name), like_field(param, value));
      });
    });
  });
  const auto refuse = [&](const std::string& what) {
    throw WeightsError(fmt::format("{}: {}", whose, what),
                       "this is the state of another optimizer or model: load it into the same ones");
  };
  if (!kept.contains("lr")) refuse("the state has no lr");
  for (const auto& [name, tensor] : kept) {
    const auto place = like.find(name);
    if (place == like.end()) return refuse(fmt::format("the state has {}, which it does not", name));
    const auto& here = place->second;
    if (here.sizes() == tensor.sizes() && here.scalar_type() == tensor.scalar_type()) continue;
    refuse(fmt::format("{} is {} in the state, {} was expected", name, form_of(tensor), form_of(here)));
  }
}

void load_optimizer_state(Optimizer& optimizer, const NameOfParameter& name_of,
                          const std::vector<NamedTensor>& state) {
  const torch::NoGradGuard no_grad;
  const auto kept = tensors_by_name(state);
  const auto rates = kept.at("lr").cpu().contiguous();
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    optimizer.param_groups()[i].options().set_lr(rates.const_data_ptr<double>()[i]);
  }
  by_kind(optimizer, [&]<class State>(std::unique_ptr<State>) {
    for_each_param(optimizer, [&](const torch::Tensor& param) {
      auto own = std::make_unique<State>();
      bool any = false;
      const auto name = name_of(param);
      visit_fields(*own, [&](const char* field, auto& value) {
        const auto found = kept.find(fmt::format("{}.{}", field, name));
        if (found == kept.end()) return;
        set_field(value, param, found->second);
        any = true;
      });
      optimizer.state().erase(param.unsafeGetTensorImpl());
      if (any) optimizer.state()[param.unsafeGetTensorImpl()] = std::move(own);
    });
  });
}

}  // namespace lockstep
