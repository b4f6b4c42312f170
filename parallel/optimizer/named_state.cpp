#include <lockstep/parallel/optimizer/named_state.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <utility>

#include <lockstep/parallel/optimizer/torch_state.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Calls action(param, kind of its state) for all parameters.
template <class Action>
void for_each_param(torch::optim::Optimizer& optimizer, const GroupParams& params, const Action& action) {
  for (size_t g = 0; g < params.size(); ++g) {
    const auto kind = torch_state(optimizer.param_groups()[g].options());
    if (!kind) {
      throw UsageError(
          "a checkpoint cannot hold the state of this optimizer",
          "use SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim, or a class derived from them");
    }
    for (const auto& param : params[g]) action(param, *kind);
  }
}

template <class Action>
void for_each_param(torch::optim::Optimizer& optimizer, const Action& action) {
  for_each_param(optimizer, params_by_group(optimizer), action);
}

using ByName = std::map<std::string, torch::Tensor>;

ByName tensors_by_name(const std::vector<NamedTensor>& state) {
  ByName result;
  for (const auto& [name, tensor] : state) result.emplace(name, tensor);
  return result;
}

// Has the parameter's form, but no memory.
torch::Tensor without_memory(const torch::Tensor& param) {
  return torch::empty(param.sizes(), param.options().device(torch::kMeta));
}

std::string form_of(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", torch::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace

GroupParams params_by_group(const torch::optim::Optimizer& optimizer) {
  GroupParams params;
  for (const auto& group : optimizer.param_groups()) params.push_back(group.params());
  return params;
}

torch::Tensor rates_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return torch::tensor(rates, torch::kFloat64);
}

void set_rates(torch::optim::Optimizer& optimizer, const torch::Tensor& rates) {
  const auto host = rates.cpu().contiguous();
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    optimizer.param_groups()[i].options().set_lr(host.const_data_ptr<double>()[i]);
  }
}

std::string name_of_field(const std::string& field, const std::string& param) {
  return fmt::format("{}.{}", field, param);
}

void require_known_optimizer(torch::optim::Optimizer& optimizer) {
  for_each_param(optimizer, [](const torch::Tensor&, const TorchState&) {});
}

std::vector<NamedTensor> optimizer_state(torch::optim::Optimizer& optimizer, const NameOfParameter& name_of) {
  std::vector<NamedTensor> result = {{"lr", rates_of(optimizer)}};
  for_each_param(optimizer, [&](const torch::Tensor& param, const TorchState& kind) {
    const auto name = name_of(param);
    const auto found = optimizer.state().find(param.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return;
    for (const auto& [field, tensor] : kind.tensors(*found->second)) {
      result.push_back({name_of_field(field, name), tensor});
    }
  });
  return result;
}

void require_optimizer_state(torch::optim::Optimizer& optimizer, const NameOfParameter& name_of,
                             const std::vector<NamedTensor>& state, const std::string& whose) {
  require_optimizer_state(optimizer, params_by_group(optimizer), name_of, state, whose);
}

void require_optimizer_state(torch::optim::Optimizer& optimizer, const GroupParams& params,
                             const NameOfParameter& name_of, const std::vector<NamedTensor>& state,
                             const std::string& whose) {
  const auto kept = tensors_by_name(state);
  std::map<std::string, torch::Tensor> like = {{"lr", rates_of(optimizer)}};
  for_each_param(optimizer, params, [&](const torch::Tensor& param, const TorchState& kind) {
    const auto name = name_of(param);
    for (const auto& [field, tensor] : kind.like(without_memory(param)))
      like.emplace(name_of_field(field, name), tensor);
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

void load_optimizer_state(torch::optim::Optimizer& optimizer, const NameOfParameter& name_of,
                          const std::vector<NamedTensor>& state, const ValuesOf& values) {
  const torch::NoGradGuard no_grad;
  const auto kept = tensors_by_name(state);
  set_rates(optimizer, values(kept.at("lr")));
  std::map<std::string, std::pair<torch::Tensor, size_t>> params;  // by name: the parameter, and its group
  const auto groups = params_by_group(optimizer);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const auto& param : groups[g]) params.emplace(name_of(param), std::pair(param, g));
  }
  for (const auto& [name, place] : params) {
    const auto& [param, group] = place;
    const auto kind = torch_state(optimizer.param_groups()[group].options());
    optimizer.state().erase(param.unsafeGetTensorImpl());
    std::vector<NamedTensor> own;
    for (const auto& [field, tensor] : kind->like(without_memory(param))) {
      const auto found = kept.find(name_of_field(field, name));
      if (found != kept.end()) own.push_back({field, values(found->second)});
    }
    if (!own.empty()) optimizer.state()[param.unsafeGetTensorImpl()] = kind->made_of(own, param);
  }
}

}  // namespace lockstep
