#include <lockstep/parallel/replicas/step.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>

#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// "net (NetImpl)"; "NetImpl" for the one without a name.
std::string text_of(const SyncedModule& synced) {
  return synced.name.empty() ? synced.type : fmt::format("{} ({})", synced.name, synced.type);
}

}  // namespace

double NamedSums::operator[](std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [own, sum] : sums_) {
    if (own == name) return sum;
    names.push_back(own);
  }
  throw UsageError(
      fmt::format("there is no sum '{}'", name),
      names.empty() ? "Step::add() adds to one" : fmt::format("there are {}", fmt::join(names, ", ")));
}

void SyncedModule::require_present(const std::string& place) const {
  if (&of_replica() == module) return;
  throw UsageError(fmt::format("{}: T has another module in the place of {} than attach() has seen", place,
                               text_of(*this)),
                   "replace no module after attach(): write other weights in place, with copy_() under "
                   "NoGradGuard or by load(), or build the other module first");
}

void Step::wait() {
  if (modules_.empty()) {
    fail("wait() was called, but no module is attached",
         "call Replicas::attach() with &T::net, or whatever T calls it, before the first step");
  }
  if (modules_.size() != 1) {
    fail(fmt::format("wait() without a module, but {} are attached", modules_.size()),
         "name the module: step.wait(own.net)");
  }
  wait_for(modules_.front());
}

SyncedModule& Step::find(const torch::nn::Module& module) {
  const auto found = std::ranges::find(modules_, &module, &SyncedModule::module);
  if (found == modules_.end()) {
    for (const auto& synced : modules_) synced.require_present(place());
    fail(fmt::format("a module that is not attached was named: {}", module.name()),
         "call Replicas::attach() with it before the first step");
  }
  return *found;
}

void Step::wait_for(SyncedModule& waited) {
  for (const auto& other : modules_) {
    if (&other == &waited || !other.sync->begun()) continue;
    fail(fmt::format("backward has reached {}, too, before wait() for {}", text_of(other), text_of(waited)),
         "call wait() after each backward pass; pause() a module that another's loss only runs through; make "
         "modules that one backward pass trains parts of one module, and attach that");
  }
  waited.require_present(place());
  auto& sync = *waited.sync;
  if (numbers_.own.rows > 0) {
    if (!sync.begun() && !waited.takes_zeros) fail_unreached(waited);
    return sync.wait();
  }
  if (!sync.begun() && !sync.holds_unsummed()) {  // what its gradients hold is of an earlier step
    const torch::NoGradGuard no_grad;
    sync.restore_views();
    sync.flat_gradients().zero_();
  }
  sync.allreduce_all();
}

void Step::fail_unreached(const SyncedModule& waited) {
  const auto* hint =
      numbers_.evaluates
          ? "wait() belongs to step(): an evaluation trains nothing, leave wait() out there"
          : "call backward() first, on a loss that depends on the module; leave wait() out, on "
            "every replica, where a step does not train it";
  fail(fmt::format("wait() was called, but no backward pass outside a no_sync() has reached {} before it",
                   text_of(waited)),
       hint);
}

Step::operator Endpoint&() {
  for (const auto& synced : modules_) {
    if (!synced.sync->begun()) continue;
    fail(fmt::format("the endpoint was used between a backward pass of {} and wait()", text_of(synced)),
         "call collectives of your own before backward(), or after step.wait() for the module");
  }
  return endpoint_;
}

void Step::require_modules() {
  const auto here = place();
  for (const auto& synced : modules_) {
    synced.require_present(here);
    synced.sync->set_place(here);
  }
}

void Step::require_waited() {
  for (const auto& synced : modules_) {
    if (!synced.sync->begun()) continue;
    fail(
        fmt::format("backward has reached {}, but wait() was not called after it", text_of(synced)),
        "call step.wait() for the module on every replica, before its optimizer's step: until then gradients "
        "are those of the replica's own rows");
  }
}

Step::Pause::Pause(const Params& trained) {
  for (const auto& param : trained) {
    if (!param.requires_grad()) continue;
    param.requires_grad_(false);
    paused_.push_back(param);
  }
}

Step::Pause::~Pause() {
  for (const auto& param : paused_) param.requires_grad_(true);
}

void Step::add(std::string_view name, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  if (!value.defined() || value.is_complex()) {
    fail(fmt::format("'{}' is {}", name, value.defined() ? "complex" : "an undefined tensor"),
         "a sum is of real numbers");
  }
  const auto sum = value.detach().to(device(), torch::kFloat64).sum();
  const auto found = std::ranges::find(sums_, name, &NamedTensor::name);
  if (found == sums_.end()) {
    sums_.push_back({std::string(name), sum});
  } else {
    found->tensor.add_(sum);
  }
}

void Step::add(std::string_view name, double value) {
  add(name, torch::full({}, value, torch::TensorOptions(torch::kFloat64).device(device())));
}

std::string Step::place() const {
  const auto when = numbers_.evaluates ? fmt::format("in an evaluation after {}", counted(number(), "step"))
                                       : fmt::format("in step {}", number());
  return fmt::format("rank {} ({}): {}", rank(), device().str(), when);
}

void Step::fail(const std::string& what, const std::string& hint) {
  throw UsageError(fmt::format("{}: {}", place(), what), hint);
}

}  // namespace lockstep
