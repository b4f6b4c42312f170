#include <lockstep/parallel/replicas/kept_replica.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>

#include <lockstep/parallel/optimizer/sharded_parts.h>
#include <lockstep/parallel/replicas/prefixed.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// Before the names of tensors among a replica's buffers, whose own names do not begin with a dot.
constexpr const char* kKeptTensors = ".kept";
constexpr const char* kUndefined = ".undefined";  // likewise, of kept tensors that are: (0) uint8

const torch::Tensor* find_named(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &found->tensor;
}

std::string form_of_kept(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", torch::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::vector<NamedTensor> buffers_of_modules(const ReplicaState& state) {
  auto buffers = state.buffers;
  std::erase_if(buffers, [](const auto& buffer) { return buffer.name.starts_with('.'); });
  return buffers;
}

std::vector<NamedTensor> state_of(const std::string& optimizer, const TrainState& state) {
  return optimizer.empty() ? state.optimizer : without_prefix(optimizer, state.optimizer);
}

TensorOwner owner(const char* name, const char* parts) {
  return {.name = name, .parts = parts, .hint = kStateHint};
}

}  // namespace

std::vector<NamedTensor> ReplicaLoop::Parts::tensors(int local, bool buffers_only) const {
  std::vector<NamedTensor> all;
  for (const auto& synced : modules[static_cast<size_t>(local)]) {
    const auto& module = *synced.module;
    append(all, with_prefix(synced.name, buffers_only ? distinct_buffers(module) : distinct_tensors(module)));
  }
  return all;
}

std::string ReplicaLoop::Parts::name_of(int local, const torch::Tensor& param,
                                        const std::string& optimizer) const {
  for (const auto& synced : modules[static_cast<size_t>(local)]) {
    for (const auto& own : distinct_parameters(*synced.module)) {
      if (own.tensor.is_same(param)) return prefixed(synced.name, own.name);
    }
  }
  throw UsageError(fmt::format("the optimizer '{}' has a parameter of no attached module", optimizer),
                   "attach() the modules that it trains, and give it their parameters");
}

KeptReplica::KeptReplica(const ReplicaLoop::Parts& parts, int local)
    : parts_(parts), local_(local), device_(parts.workers.devices()[static_cast<size_t>(local)]) {
  for (const auto& synced : parts.modules[static_cast<size_t>(local)]) {
    synced.require_present(fmt::format("after {}", counted(parts.steps, "step")));
  }
}

template <class Action>
void KeptReplica::for_each_optimizer(const Action& action) const {
  for (const auto& kept : parts_.kept) {
    if (!kept.optimizer) continue;
    action(kept.name, kept.optimizer(local_),
           [&](const torch::Tensor& param) { return parts_.name_of(local_, param, kept.name); });
  }
}

// action: (name, the parts of one, the names of its parameters).
template <class Action>
void KeptReplica::for_each_sharded(const Action& action) const {
  for (const auto& kept : parts_.kept) {
    if (!kept.sharded) continue;
    action(kept.name, *kept.sharded(local_).parts_,
           [&](const torch::Tensor& param) { return parts_.name_of(local_, param, kept.name); });
  }
}

std::vector<NamedTensor> KeptReplica::optimizers() const {
  std::vector<NamedTensor> all;
  for_each_sharded([](const auto&, auto& parts, const auto& name_of) { parts.require_named(name_of); });
  for_each_optimizer([&](const auto& name, auto& optimizer, const auto& name_of) {
    append(all, with_prefix(name, optimizer_state(optimizer, name_of)));
  });
  return all;
}

std::vector<NamedTensor> KeptReplica::sharded_optimizers(Endpoint& endpoint,
                                                         const TensorAllocator* memory) const {
  std::vector<NamedTensor> all;
  for_each_sharded([&](const auto& name, auto& parts, const auto& name_of) {
    append(all, with_prefix(name, parts.state(name_of, endpoint, memory)));
  });
  return all;
}

std::vector<NamedTensor> KeptReplica::own() const {
  auto all = parts_.tensors(local_, /*buffers_only=*/true);
  for (const auto& kept : parts_.kept) {
    if (!kept.tensor) continue;
    const auto& tensor = kept.tensor(local_);
    append(all, tensor.defined() ? with_prefix(kKeptTensors, {{kept.name, tensor}})
                                 : with_prefix(kUndefined, {{kept.name, torch::empty({0}, torch::kUInt8)}}));
  }
  return all;
}

void KeptReplica::require(const TrainState& state) const {
  if (state.steps < 0) throw WeightsError(fmt::format("the state is of step {}", state.steps), kStateHint);
  require_same_tensors_and_types(parts_.tensors(local_, false), state.model,
                                 owner("loop", "parameters and buffers"));
  auto left = state.optimizer.size();
  for_each_optimizer([&](const auto& name, auto& optimizer, const auto& name_of) {
    const auto own = state_of(name, state);
    left -= own.size();
    require_optimizer_state(optimizer, name_of, own, prefixed("optimizer", name));
  });
  for_each_sharded([&](const auto& name, auto& parts, const auto& name_of) {
    const auto own = state_of(name, state);
    left -= own.size();
    parts.require(own, name_of, prefixed("optimizer", name));
  });
  if (left > 0) {
    throw WeightsError("the state has an optimizer that is not kept here",
                       "call keep() with the same optimizers, under the same names, before load()");
  }
  for (const auto& replica : state.replicas) {
    require_same_tensors_and_types(parts_.tensors(local_, true), buffers_of_modules(replica),
                                   owner("replica", "buffers"));
    require_generators(device_, replica);
  }
  require_kept(state);
}

// By name, for as many replicas, and as take_kept() can copy them.
void KeptReplica::require_kept(const TrainState& state) const {
  const auto own = own_of(state);
  auto left = own.buffers.size() - buffers_of_modules(own).size();
  if (left > 0 && !of_this_world(state)) {
    throw WeightsError(fmt::format("the state has the kept tensors of {} replicas, here are {}",
                                   state.replicas.size(), parts_.communicator->world_size()),
                       "go on with as many replicas, or do not keep() tensors of each replica");
  }
  for (const auto& kept : parts_.kept) {
    if (!kept.tensor) continue;
    require_kept(kept, own);
    --left;
  }
  if (left == 0) return;
  throw WeightsError("the state has a tensor that is not kept here",
                     "call keep() with the same tensors, under the same names, before load()");
}

void KeptReplica::require_kept(const ReplicaLoop::Parts::Kept& kept, const ReplicaState& own) const {
  const auto* saved = find_named(own.buffers, prefixed(kKeptTensors, kept.name));
  if (!saved) {
    if (find_named(own.buffers, prefixed(kUndefined, kept.name))) return;
    throw WeightsError(fmt::format("the state has no kept tensor '{}'", kept.name), kStateHint);
  }
  const auto& here = kept.tensor(local_);
  if (!here.defined()) return;
  if (here.sizes() == saved->sizes() && here.scalar_type() == saved->scalar_type()) return;
  throw WeightsError(fmt::format("the kept tensor '{}' is {} in the state, here it is {}", kept.name,
                                 form_of_kept(*saved), form_of_kept(here)),
                     "give it that shape and type before load(), or leave it undefined");
}

void KeptReplica::take(const TrainState& state, const ValuesOf& values, Endpoint& endpoint) const {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> weights;
  for (const auto& [name, tensor] : parts_.tensors(local_, false)) weights.emplace(name, tensor.detach());
  for (const auto& [name, saved] : state.model) weights.at(name).copy_(values(saved));
  for_each_optimizer([&](const auto& name, auto& optimizer, const auto& name_of) {
    load_optimizer_state(optimizer, name_of, state_of(name, state), values);
  });
  for_each_sharded([&](const auto& name, auto& parts, const auto& name_of) {
    parts.take(state_of(name, state), name_of, values, endpoint);
  });
  const auto own = own_of(state);
  if (of_this_world(state)) {
    load_tensors(parts_.tensors(local_, true), buffers_of_modules(own), owner("replica", "buffers"));
    take_kept(own);
  }
  set_generators(local_, parts_.workers.devices(), own);
}

// In place where there is a tensor: others may refer to its memory.
void KeptReplica::take_kept(const ReplicaState& own) const {
  for (const auto& kept : parts_.kept) {
    if (!kept.tensor) continue;
    auto& here = kept.tensor(local_);
    const auto* saved = find_named(own.buffers, prefixed(kKeptTensors, kept.name));
    if (!saved) {
      here = torch::Tensor();
    } else if (here.defined()) {
      here.detach().copy_(*saved);
    } else {
      here = saved->to(device_, saved->scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
  }
}

bool KeptReplica::of_this_world(const TrainState& state) const {
  return static_cast<int>(state.replicas.size()) == parts_.communicator->world_size();
}

// The state of its rank; of rank 0 if it is one of another world; empty if it has none.
ReplicaState KeptReplica::own_of(const TrainState& state) const {
  if (state.replicas.empty()) return {};
  const int rank = parts_.communicator->first_rank() + local_;
  return state.replicas[of_this_world(state) ? static_cast<size_t>(rank) : 0];
}

}  // namespace lockstep
