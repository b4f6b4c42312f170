#include <lockstep/parallel/sharded_optimizer.h>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/collectives/or_end_all.h>
#include <lockstep/parallel/optimizer/sharded_parts.h>
#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

constexpr const char* kElementwise =
    "a ShardedOptimizer takes SGD, Adam, AdamW, RMSprop and Adagrad of torch::optim, whose steps treat each "
    "element alone; use another one unsharded, on every replica";

template <class... Kinds>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((typeid(optimizer) == typeid(Kinds)) || ...);
}

void require_elementwise(const torch::optim::Optimizer* optimizer) {
  namespace optim = torch::optim;
  if (!optimizer) throw UsageError("a ShardedOptimizer was given no optimizer", kElementwise);
  if (dynamic_cast<const optim::LBFGS*>(optimizer)) {
    throw UsageError(
        "LBFGS cannot be sharded: its step computes the loss several times, and products over "
        "all parameters",
        kElementwise);
  }
  if (is_one_of<optim::SGD, optim::Adam, optim::AdamW, optim::RMSprop, optim::Adagrad>(*optimizer)) return;
  throw UsageError(fmt::format("{} cannot be sharded: its step may read whole parameters",
                               c10::demangle(typeid(*optimizer).name())),
                   kElementwise);
}

NameOfParameter names_in(const torch::nn::Module& module) {
  return [named = distinct_parameters(module), type = module.name()](const torch::Tensor& param) {
    for (const auto& item : named) {
      if (item.tensor.is_same(param)) return item.name;
    }
    throw UsageError(fmt::format("the optimizer has a parameter that is none of {}", type),
                     "give state() and load() the module whose parameters it updates");
  };
}

// The names and types of a state.
Lines lines_of(const std::vector<NamedTensor>& state) {
  Lines lines;
  for (const auto& [name, tensor] : state) {
    lines.push_back(fmt::format("{} {}", name, tensor.toString() + c10::str(tensor.sizes())));
  }
  return lines;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                   const ShardedOptimizerOptions& options) {
  require_elementwise(optimizer.get());
  if (options.bucket_bytes < 1) {
    throw UsageError(fmt::format("a bucket of {} bytes", options.bucket_bytes),
                     "give buckets 1 byte or more");
  }
  parts_ = std::make_unique<Parts>(std::move(optimizer), options);
}

ShardedOptimizer::~ShardedOptimizer() = default;
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer& ShardedOptimizer::operator=(ShardedOptimizer&&) noexcept = default;

void ShardedOptimizer::step(Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  or_end_all(endpoint, [&] { parts_->step(endpoint); });
}

void ShardedOptimizer::zero_grad(bool set_to_none) { parts_->zero_grad(set_to_none); }

std::vector<torch::optim::OptimizerParamGroup>& ShardedOptimizer::param_groups() {
  return parts_->optimizer->param_groups();
}

torch::optim::Optimizer& ShardedOptimizer::optimizer() { return *parts_->optimizer; }

int64_t ShardedOptimizer::state_bytes() const { return parts_->state_bytes(); }

std::vector<NamedTensor> ShardedOptimizer::state(const torch::nn::Module& module, Endpoint& endpoint,
                                                 const TensorAllocator& memory) {
  const torch::NoGradGuard no_grad;
  return or_end_all(endpoint, [&] {
    return parts_->state(names_in(module), endpoint, endpoint.rank() == 0 ? &memory : nullptr);
  });
}

void ShardedOptimizer::load(const std::vector<NamedTensor>& state, const torch::nn::Module& module,
                            Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const auto name_of = names_in(module);
  std::exception_ptr refused;
  std::string text;
  or_end_all(endpoint, [&] {
    try {
      parts_->require(state, name_of, "optimizer");
    } catch (const WeightsError& error) {
      refused = std::current_exception();
      text = error.message();
    }
  });
  const auto texts = gather_texts(text, endpoint);
  if (refused) std::rethrow_exception(refused);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    throw WeightsError(fmt::format("rank {} does not take the state: {}", rank, texts[rank]),
                       "give all ranks the state of the same optimizer and module");
  }
  agree(endpoint, "states", lines_of(state), "give load() the same state on all ranks");
  or_end_all(endpoint, [&] { parts_->take(state, name_of, own_values, endpoint); });
}

}  // namespace lockstep
