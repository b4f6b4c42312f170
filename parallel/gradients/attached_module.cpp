#include <lockstep/parallel/gradients/attached_module.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// Throws unless they fit into one buffer.
void require_one_type(const std::vector<std::string>& names, const Params& params) {
  const auto real = [&](size_t i) { return c10::toRealValueType(params[i].scalar_type()); };
  const auto type_of = [&](size_t i) {
    return fmt::format("{} is {} on {}", names[i], torch::toString(params[i].scalar_type()),
                       params[i].device().str());
  };
  for (size_t i = 1; i < params.size(); ++i) {
    if (real(i) == real(0) && params[i].device() == params[0].device()) continue;
    throw UsageError(fmt::format("parameters differ in type or device: {}, {}", type_of(0), type_of(i)),
                     "give all parameters of a replica one dtype and one device");
  }
}

// registered: parameters of the module, trained or not.
void require_some(const Params& trained, size_t registered) {
  if (!trained.empty()) return;
  if (registered == 0) {
    throw UsageError("the module has no parameters to train",
                     "its constructor registers them: layers by register_module(), tensors by "
                     "register_parameter()");
  }
  throw UsageError(fmt::format("the module has no parameters to train: all {} are frozen", registered),
                   "call requires_grad_(true) on those to train");
}

std::string description(torch::ScalarType dtype, at::IntArrayRef sizes, torch::Device device) {
  return fmt::format("{} [{}] on {}", torch::toString(dtype), fmt::join(sizes, ", "), device.str());
}

}  // namespace

AttachedModule::AttachedModule(const torch::nn::Module& module)
    : module_(&module), type_(module.name()), registered_(distinct_parameters(module)) {
  for (const auto& param : registered_) {
    const bool trained = param.tensor.requires_grad();
    if (trained && torch::autograd::impl::post_acc_grad_hooks(param.tensor)) {
      throw UsageError(fmt::format("parameter {} has a post-accumulate hook already", param.name),
                       "use one GradientSync per module, and no such hooks of your own");
    }
    if (trained) {
      names_.push_back(param.name);
      trained_.push_back(param.tensor);
    }
    seen_.push_back({.trained = trained,
                     .dtype = param.tensor.scalar_type(),
                     .device = param.tensor.device(),
                     .sizes = param.tensor.sizes().vec()});
  }
  require_some(trained_, seen_.size());
  require_one_type(names_, trained_);
}

std::optional<AttachedModule::Change> AttachedModule::change_of_parameters() const {
  const auto other = changed_registration(*module_, registered_);
  if (!other) return std::nullopt;
  return Change{*other + " after attach()",
                "register all layers before attach(), in the module's constructor; a module that gets other "
                "layers needs a new GradientSync, made when the old one is gone, or a new Trainer"};
}

std::optional<AttachedModule::Change> AttachedModule::change() const {
  if (auto change = change_of_parameters()) return change;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const auto& [name, now] = registered_[i];
    const auto& [trained, dtype, device, sizes] = seen_[i];
    if (now.requires_grad() != trained) {
      return Change{fmt::format("parameter {} was {} after attach()", name, trained ? "frozen" : "unfrozen"),
                    "after requires_grad_() call attach() again, with the same module and on every rank, "
                    "before the next backward pass. A Trainer does so before its next step: its model() and "
                    "synchronize() wait for the steps in flight, call one of them before requires_grad_()"};
    }
    const bool alike = now.scalar_type() == dtype && now.device() == device && now.sizes() == sizes;
    if (!trained || alike) continue;
    return Change{fmt::format("parameter {} is {}, but was {} at attach()", name,
                              description(now.scalar_type(), now.sizes(), now.device()),
                              description(dtype, sizes, device)),
                  "convert, move and load a module before attach(); afterwards write in place, with copy_() "
                  "under NoGradGuard"};
  }
  return std::nullopt;
}

}  // namespace lockstep
