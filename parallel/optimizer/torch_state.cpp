#include <lockstep/parallel/optimizer/torch_state.h>

#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <string>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace optim = torch::optim;

// Visits the state that a step of each optimizer keeps: calls visit(name, field) for every field that the
// options use.
template <class Visit>
void visit_fields(const optim::SGDOptions& options, optim::SGDParamState& state, const Visit& visit) {
  if (options.momentum() != 0) visit("momentum_buffer", state.momentum_buffer());
}

template <class Options, class State, class Visit>
void visit_adam(const Options& options, State& state, const Visit& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  if (options.amsgrad()) visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <class Visit>
void visit_fields(const optim::AdamOptions& options, optim::AdamParamState& state, const Visit& visit) {
  visit_adam(options, state, visit);
}

template <class Visit>
void visit_fields(const optim::AdamWOptions& options, optim::AdamWParamState& state, const Visit& visit) {
  visit_adam(options, state, visit);
}

template <class Visit>
void visit_fields(const optim::RMSpropOptions& options, optim::RMSpropParamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  if (options.momentum() > 0) visit("momentum_buffer", state.momentum_buffer());
  if (options.centered()) visit("grad_avg", state.grad_avg());
}

template <class Visit>
void visit_fields(const optim::AdagradOptions&, optim::AdagradParamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

std::string text_of_options(const optim::SGDOptions& options) {
  return fmt::format("momentum {}, dampening {}, weight_decay {}, nesterov {}", options.momentum(),
                     options.dampening(), options.weight_decay(), options.nesterov());
}

template <class Options>
std::string text_of_adam(const Options& options) {
  const auto& [first, second] = options.betas();
  return fmt::format("betas {} and {}, eps {}, weight_decay {}, amsgrad {}", first, second, options.eps(),
                     options.weight_decay(), options.amsgrad());
}
std::string text_of_options(const optim::AdamOptions& options) { return text_of_adam(options); }
std::string text_of_options(const optim::AdamWOptions& options) { return text_of_adam(options); }

std::string text_of_options(const optim::RMSpropOptions& options) {
  return fmt::format("alpha {}, eps {}, weight_decay {}, momentum {}, centered {}", options.alpha(),
                     options.eps(), options.weight_decay(), options.momentum(), options.centered());
}

std::string text_of_options(const optim::AdagradOptions& options) {
  return fmt::format("lr_decay {}, weight_decay {}, initial_accumulator_value {}, eps {}", options.lr_decay(),
                     options.weight_decay(), options.initial_accumulator_value(), options.eps());
}

torch::Tensor as_tensor(int64_t number) { return torch::full({}, number, torch::kInt64); }
torch::Tensor as_tensor(const torch::Tensor& tensor) { return tensor; }

torch::Tensor like_field(int64_t, const torch::Tensor&) { return as_tensor(0); }
torch::Tensor like_field(const torch::Tensor&, const torch::Tensor& param) {
  return torch::empty_like(param.detach());
}

void set_field(int64_t& field, const torch::Tensor& value, const torch::Tensor&) {
  field = value.item<int64_t>();
}
void set_field(torch::Tensor& field, const torch::Tensor& value, const torch::Tensor& param) {
  field = torch::empty_like(param.detach()).copy_(value);
}

template <class Options, class State>
class StateOf final : public TorchState {
 public:
  explicit StateOf(const Options& options) : options_(options) {}

  std::vector<NamedTensor> tensors(optim::OptimizerParamState& state) const override {
    auto* own = dynamic_cast<State*>(&state);
    if (!own) {
      throw UsageError("the optimizer of the factory has the options of one of torch's, but another state",
                       "keep what it needs in a state of torch's type, or save it yourself");
    }
    std::vector<NamedTensor> result;
    visit_fields(options_, *own, [&](const char* name, const auto& field) {
      const auto tensor = as_tensor(field);
      if (tensor.defined()) result.push_back({name, tensor});
    });
    return result;
  }

  std::vector<NamedTensor> like(const torch::Tensor& param) const override {
    State state;
    std::vector<NamedTensor> result;
    visit_fields(options_, state, [&](const char* name, const auto& field) {
      result.push_back({name, like_field(field, param)});
    });
    return result;
  }

  std::unique_ptr<optim::OptimizerParamState> made_of(const std::vector<NamedTensor>& tensors,
                                                      const torch::Tensor& param) const override {
    auto state = std::make_unique<State>();
    visit_fields(options_, *state, [&](const char* name, auto& field) {
      for (const auto& item : tensors) {
        if (item.name == name) set_field(field, item.tensor, param);
      }
    });
    return state;
  }

  std::string options() const override {
    return fmt::format("lr {}, {}", options_.get_lr(), text_of_options(options_));
  }

 private:
  const Options& options_;
};

// Sets `result` if the options are of this type.
template <class Options, class State>
void try_type(const optim::OptimizerOptions& options, std::unique_ptr<TorchState>& result) {
  const auto* own = dynamic_cast<const Options*>(&options);
  if (own) result = std::make_unique<StateOf<Options, State>>(*own);
}

}  // namespace

std::unique_ptr<TorchState> torch_state(const optim::OptimizerOptions& options) {
  std::unique_ptr<TorchState> result;
  try_type<optim::SGDOptions, optim::SGDParamState>(options, result);
  try_type<optim::AdamOptions, optim::AdamParamState>(options, result);
  try_type<optim::AdamWOptions, optim::AdamWParamState>(options, result);
  try_type<optim::RMSpropOptions, optim::RMSpropParamState>(options, result);
  try_type<optim::AdagradOptions, optim::AdagradParamState>(options, result);
  return result;
}

}  // namespace lockstep
