#include <lockstep/parallel/optimizer/torch_optimizer.h>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <typeinfo>
#include <utility>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/optimizer/torch_state.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kKnown = "lockstep knows the state of torch's SGD, Adam, AdamW, RMSprop and Adagrad";

std::string type_of(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

// A value of its options; nothing if they have none.
std::optional<double> rate_of(const torch::optim::OptimizerOptions& options) {
  try {
    return options.get_lr();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

void require_steps_alone(const torch::optim::Optimizer* optimizer) {
  if (!optimizer) {
    throw UsageError("the optimizer factory returned no optimizer",
                     "return one, such as std::make_unique<torch::optim::RMSprop>(params)");
  }
  if (dynamic_cast<const torch::optim::LBFGS*>(optimizer)) {
    throw UsageError("LBFGS cannot be an optimizer of a Trainer: its step computes the loss several times",
                     "use another optimizer of torch::optim; or LBFGS in a loop of your own");
  }
}

// Returns the factor of each group on the schedule's rate: its own rate in parts of the optimizer's.
std::vector<double> lr_factors_of(const torch::optim::Optimizer& optimizer) {
  const auto common = rate_of(optimizer.defaults());
  std::vector<double> factors;
  for (const auto& group : optimizer.param_groups()) {
    const auto own = rate_of(group.options());
    const double factor = common && own ? *own / *common : std::nan("");
    if (!std::isfinite(factor) || factor < 0) {
      throw UsageError(fmt::format("the groups of {} have no rates in parts of its own", type_of(optimizer)),
                       "give the optimizer a rate above 0, which TrainerOptions::lr replaces, and its groups "
                       "rates that are multiples of it; options of your own need get_lr() and set_lr()");
    }
    factors.push_back(factor);
  }
  return factors;
}

const torch::Tensor* find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& item) { return item.name == name; });
  return found != tensors.end() ? &found->tensor : nullptr;
}

// Marks a parameter that no step has moved: torch makes its state at its first one.
std::string mark_of(const std::string& param) { return "unstepped." + param; }

torch::Tensor mark() { return torch::ones({}, torch::kInt64); }

}  // namespace

TorchOptimizer::TorchOptimizer(OptimizerFactory factory) : factory_(std::move(factory)) {}
TorchOptimizer::~TorchOptimizer() = default;

void TorchOptimizer::hold(TrainedParameters trained) {
  auto made = factory_(trained.order->params);
  require_steps_alone(made.get());
  lr_factors_ = lr_factors_of(*made);
  std::swap(optimizer_, made);
  trained_ = std::move(trained);
  groups_ = group_of_params();
  if (!made) return;
  for (const auto& param : trained_.order->params) {  // the same objects as before
    const auto old = made->state().find(param.unsafeGetTensorImpl());
    if (old != made->state().end()) optimizer_->state()[old->first] = std::move(old->second);
  }
}

std::vector<size_t> TorchOptimizer::group_of_params() const {
  const auto& groups = optimizer_->param_groups();
  std::vector<std::optional<size_t>> found(trained_.order->params.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const auto& param : groups[g].params()) {
      const auto own = std::find_if(trained_.order->params.begin(), trained_.order->params.end(),
                                    [&](const torch::Tensor& other) { return other.is_same(param); });
      if (own == trained_.order->params.end()) {
        throw UsageError(fmt::format("{} of the optimizer factory has a tensor [{}] that is none of the "
                                     "parameters it was given",
                                     type_of(*optimizer_), fmt::join(param.sizes(), ", ")),
                         "give it the tensors themselves, and no copies");
      }
      found[static_cast<size_t>(own - trained_.order->params.begin())] = g;
    }
  }
  std::vector<size_t> result;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) {
      throw UsageError(fmt::format("{} of the optimizer factory leaves out parameter {}",
                                   type_of(*optimizer_), trained_.order->names[i]),
                       "give it all parameters, and freeze others with requires_grad_(false)");
    }
    result.push_back(*found[i]);
  }
  return result;
}

std::unique_ptr<TorchState> TorchOptimizer::state_of_param(size_t param) const {
  return torch_state(optimizer_->param_groups()[groups_[param]].options());
}

void TorchOptimizer::set_lr(double lr) {
  auto& groups = optimizer_->param_groups();
  for (size_t g = 0; g < groups.size(); ++g) groups[g].options().set_lr(lr * lr_factors_[g]);
}

void TorchOptimizer::step(const torch::Tensor& scale) {
  const torch::NoGradGuard no_grad;
  for (const auto& range : trained_.ranges) range.scale_gradients(scale);
  optimizer_->step();
  for (const auto& range : trained_.ranges) range.end_update();
}

std::vector<NamedTensor> TorchOptimizer::tensors() {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < trained_.order->params.size(); ++i) {
    const auto kind = state_of_param(i);
    if (!kind) {
      throw UsageError(fmt::format("the state of {} cannot be saved", type_of(*optimizer_)), kKnown);
    }
    const auto state = optimizer_->state().find(trained_.order->params[i].unsafeGetTensorImpl());
    if (state == optimizer_->state().end()) {
      if (!kind->like(trained_.order->params[i]).empty())
        result.push_back({mark_of(trained_.order->names[i]), mark()});
      continue;
    }
    for (const auto& [name, tensor] : kind->tensors(*state->second)) {
      result.push_back({name + "." + trained_.order->names[i], tensor});
    }
  }
  return result;
}

std::vector<NamedTensor> TorchOptimizer::host_copies(const TensorAllocator* memory) {
  return memory ? lockstep::host_copies(tensors(), *memory) : std::vector<NamedTensor>();
}

std::vector<NamedTensor> TorchOptimizer::expected(const std::vector<NamedTensor>& state) {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < trained_.order->params.size(); ++i) {
    const auto kind = state_of_param(i);
    if (!kind) {
      throw WeightsError(fmt::format("the state of {} cannot be loaded", type_of(*optimizer_)), kKnown);
    }
    if (find(state, mark_of(trained_.order->names[i]))) {
      result.push_back({mark_of(trained_.order->names[i]), mark()});
      continue;
    }
    for (const auto& [name, tensor] : kind->like(trained_.order->params[i])) {
      result.push_back({name + "." + trained_.order->names[i], tensor});
    }
  }
  return result;
}

void TorchOptimizer::load(const std::vector<NamedTensor>& state, Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const bool leads = endpoint.rank() == 0;
  const auto& names = trained_.order->names;
  auto there = torch::zeros({static_cast<int64_t>(names.size())}, torch::kInt64);
  for (size_t i = 0; leads && i < names.size(); ++i) {
    there[static_cast<int64_t>(i)] = static_cast<int64_t>(!find(state, mark_of(names[i])));
  }
  auto shared = there.to(endpoint.device());
  endpoint.broadcast(shared, 0).wait();
  there = shared.cpu();

  optimizer_.reset();  // a parameter without a state begins anew
  hold(std::move(trained_));
  for (size_t i = 0; i < names.size(); ++i) {
    if (there[static_cast<int64_t>(i)].item<int64_t>() == 0) continue;
    const auto& param = trained_.order->params[i];
    const auto kind = state_of_param(i);
    auto tensors = kind->like(param);
    if (tensors.empty()) continue;
    for (auto& [name, tensor] : tensors) {
      auto value = torch::empty(tensor.sizes(), tensor.options().device(endpoint.device()));
      if (leads) value.copy_(*find(state, name + "." + names[i]));
      endpoint.broadcast(value, 0).wait();
      tensor = value;
    }
    optimizer_->state()[param.unsafeGetTensorImpl()] = kind->made_of(tensors, param);
  }
}

std::vector<std::string> TorchOptimizer::lines() const {
  std::vector<std::string> lines = {type_of(*optimizer_)};
  for (size_t i = 0; i < trained_.order->names.size(); ++i) {
    lines.push_back(fmt::format("{}: group {}, lr_factor {}", trained_.order->names[i], groups_[i],
                                lr_factors_[groups_[i]]));
  }
  return lines;
}

}  // namespace lockstep
