// ReplicaLoop::state() and load().
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/collectives/named_bytes.h>
#include <lockstep/parallel/optimizer/named_state.h>
#include <lockstep/parallel/replicas/loop_parts.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/support/error.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

constexpr const char* kStateHint = "this is the state of other modules, optimizers or tensors";
constexpr const char* kKeptTensors = "kept";  // before the names of tensors among a replica's buffers

std::vector<NamedTensor> with_prefix(const std::string& prefix, std::vector<NamedTensor> tensors) {
  for (auto& [name, tensor] : tensors) name = prefixed(prefix, name);
  return tensors;
}

// Returns those whose names begin so, without it.
std::vector<NamedTensor> without_prefix(const std::string& prefix, const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  const auto begin = prefixed(prefix, "");
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(begin)) result.push_back({name.substr(begin.size()), tensor});
  }
  return result;
}

void append(std::vector<NamedTensor>& all, std::vector<NamedTensor> more) {
  std::ranges::move(more, std::back_inserter(all));
}

torch::Tensor bytes_or_none(const torch::Tensor& bytes) {
  return bytes.defined() ? bytes : torch::empty({0}, torch::kUInt8);
}

// A state as one list of tensors, which travels to the other processes.
std::vector<NamedTensor> listed(const TrainState& state) {
  std::vector<NamedTensor> all = {{"steps", torch::full({1}, state.steps, torch::kInt64)}};
  append(all, with_prefix("model", state.model));
  append(all, with_prefix("optimizer", state.optimizer));
  for (size_t rank = 0; rank < state.replicas.size(); ++rank) {
    const auto& replica = state.replicas[rank];
    const auto name = fmt::format("replica{}", rank);
    append(all, with_prefix(name, {{"host", bytes_or_none(replica.host_generator)},
                                   {"device", bytes_or_none(replica.device_generator)}}));
    append(all, with_prefix(name + ".buffers", replica.buffers));
  }
  return all;
}

TrainState unlisted(const std::vector<NamedTensor>& all) {
  TrainState state;
  state.steps = all.front().tensor.item<int64_t>();
  state.model = without_prefix("model", all);
  state.optimizer = without_prefix("optimizer", all);
  while (true) {
    const auto own = without_prefix(fmt::format("replica{}", state.replicas.size()), all);
    if (own.empty()) return state;
    state.replicas.push_back({.buffers = without_prefix("buffers", own),
                              .rows_trained = 0,
                              .host_generator = own[0].tensor,
                              .device_generator = own[1].tensor});
  }
}

}  // namespace

std::vector<NamedTensor> ReplicaLoop::Parts::tensors(int local, bool buffers_only) const {
  std::vector<NamedTensor> all;
  for (const auto& [name, module, sync] : modules[static_cast<size_t>(local)]) {
    append(all, with_prefix(name, buffers_only ? distinct_buffers(*module) : distinct_tensors(*module)));
  }
  return all;
}

std::string ReplicaLoop::Parts::name_of(int local, const torch::Tensor& param,
                                        const std::string& optimizer) const {
  for (const auto& [name, module, sync] : modules[static_cast<size_t>(local)]) {
    for (const auto& own : distinct_parameters(*module)) {
      if (own.tensor.is_same(param)) return prefixed(name, own.name);
    }
  }
  throw UsageError(fmt::format("the optimizer '{}' has a parameter of no attached module", optimizer),
                   "attach() the modules that it trains, and give it their parameters");
}

// Everything of one replica that a state holds, and how it is taken back.
class KeptReplica {
 public:
  KeptReplica(const ReplicaLoop::Parts& parts, int local) : parts_(parts), local_(local) {}

  std::vector<NamedTensor> optimizers() const {
    std::vector<NamedTensor> all;
    for_each_optimizer([&](const auto& name, auto& optimizer, const auto& name_of) {
      append(all, with_prefix(name, optimizer_state(optimizer, name_of)));
    });
    return all;
  }

  // Buffers, and tensors that the user keeps.
  std::vector<NamedTensor> own() const {
    auto all = parts_.tensors(local_, /*buffers_only=*/true);
    for (const auto& kept : parts_.kept) {
      if (!kept.tensor) continue;
      const auto& tensor = kept.tensor(local_);
      if (tensor.defined()) append(all, with_prefix(kKeptTensors, {{kept.name, tensor}}));
    }
    return all;
  }

  // Throws WeightsError, on all ranks alike, unless take() takes it.
  void require(const TrainState& state) const {
    if (state.steps < 0) throw WeightsError(fmt::format("the state is of step {}", state.steps), kStateHint);
    require_same_tensors(parts_.tensors(local_, false), state.model,
                         {.name = "modules", .parts = "parameters and buffers", .hint = kStateHint});
    auto left = state.optimizer.size();
    for_each_optimizer([&](const auto& name, auto& optimizer, const auto& name_of) {
      const auto own = state_of(name, state);
      left -= own.size();
      require_optimizer_state(optimizer, name_of, own, prefixed("optimizer", name));
    });
    if (left > 0) {
      throw WeightsError("the state has an optimizer that is not kept here",
                         "call keep() with the same optimizers, under the same names, before load()");
    }
    const bool has_kept =
        std::ranges::any_of(parts_.kept, [](const auto& kept) { return bool(kept.tensor); });
    const auto replicas = static_cast<int>(state.replicas.size());
    for (const auto& replica : state.replicas) require_generator_state(replica.host_generator);
    if (replicas == world()) return;
    if (has_kept) {
      throw WeightsError(
          fmt::format("the state has the kept tensors of {} replicas, here are {}", replicas, world()),
          "go on with as many replicas, or do not keep() tensors of each replica");
    }
  }

  void take(const TrainState& state, Endpoint& endpoint) const {
    const torch::NoGradGuard no_grad;
    load_tensors(parts_.tensors(local_, false), state.model,
                 {.name = "modules", .parts = "tensors", .hint = kStateHint});
    for_each_optimizer([&](const auto& name, auto& optimizer, const auto& name_of) {
      load_optimizer_state(optimizer, name_of, state_of(name, state));
    });
    if (static_cast<int>(state.replicas.size()) != world()) return;
    const auto& own = state.replicas[static_cast<size_t>(endpoint.rank())];
    for (const auto& into : parts_.tensors(local_, true)) {
      const auto found = std::ranges::find(own.buffers, into.name, &NamedTensor::name);
      if (found != own.buffers.end()) into.tensor.copy_(found->tensor);
    }
    const auto tensors = without_prefix(kKeptTensors, own.buffers);
    for (const auto& kept : parts_.kept) {
      if (!kept.tensor) continue;
      const auto found = std::ranges::find(tensors, kept.name, &NamedTensor::name);
      kept.tensor(local_) =
          found == tensors.end() ? torch::Tensor() : found->tensor.clone().to(endpoint.device());
    }
    set_generator_state(torch::kCPU, bytes_or_none(own.host_generator));
    if (!endpoint.device().is_cpu())
      set_generator_state(endpoint.device(), bytes_or_none(own.device_generator));
  }

 private:
  template <class Action>
  void for_each_optimizer(const Action& action) const {
    for (const auto& kept : parts_.kept) {
      if (!kept.optimizer) continue;
      action(kept.name, kept.optimizer(local_),
             [&](const torch::Tensor& param) { return parts_.name_of(local_, param, kept.name); });
    }
  }

  static std::vector<NamedTensor> state_of(const std::string& optimizer, const TrainState& state) {
    return optimizer.empty() ? state.optimizer : without_prefix(optimizer, state.optimizer);
  }

  int world() const { return parts_.communicator->world_size(); }

  const ReplicaLoop::Parts& parts_;
  const int local_;
};

TrainState ReplicaLoop::state() {
  auto& parts = *parts_;
  parts.compare_batches();
  const bool leads = first_rank() == 0;
  TrainState state{.steps = parts.steps, .lr = {}, .model = {}, .optimizer = {}, .replicas = {}, .split = {}};
  std::vector<torch::Tensor> packed;
  run([&](int local, Endpoint& endpoint) {
    const torch::NoGradGuard no_grad;
    const KeptReplica replica(parts, local);
    auto own = std::vector<NamedTensor>{{"host", generator_state(torch::kCPU)},
                                        {"device", device_generator_state(endpoint.device())}};
    append(own, with_prefix("buffers", replica.own()));
    auto all = gather_bytes(to_bytes(own), endpoint);
    const auto optimizers = replica.optimizers();
    if (local != 0 || !leads) return;
    packed = std::move(all);
    state.model = host_copies(parts.tensors(local, false));
    state.optimizer = host_copies(optimizers);
  });
  parts.throw_if_aborted();
  for (const auto& bytes : packed) {
    const auto own = from_bytes(bytes);
    state.replicas.push_back({.buffers = without_prefix("buffers", own),
                              .rows_trained = 0,
                              .host_generator = own[0].tensor,
                              .device_generator = own[1].tensor});
  }
  return state;
}

void ReplicaLoop::load(const TrainState& given) {
  auto& parts = *parts_;
  parts.compare_batches();
  TrainState state = given;
  if (world_size() != local_size()) {
    torch::Tensor bytes;
    const auto own = first_rank() == 0 ? to_bytes(listed(given)) : torch::empty({0}, torch::kUInt8);
    run([&](int local, Endpoint& endpoint) {
      const auto received = broadcast_bytes(own, endpoint);
      if (local == 0) bytes = received;
    });
    state = unlisted(from_bytes(bytes));
  }
  std::vector<std::exception_ptr> refused(static_cast<size_t>(local_size()));
  run([&](int local, Endpoint&) {
    try {
      KeptReplica(parts, local).require(state);
    } catch (const Error&) {  // the same on all ranks: nothing has changed, and nothing ends
      refused[static_cast<size_t>(local)] = std::current_exception();
    }
  });
  if (refused.front()) std::rethrow_exception(refused.front());
  run([&](int local, Endpoint& endpoint) { KeptReplica(parts, local).take(state, endpoint); });
  parts.steps = state.steps;
  parts.rows = 0;
  parts.sums.assign(parts.sums.size(), {});
}

}  // namespace lockstep
