// ReplicaLoop::state(), load() and check_sync().
#include <fmt/format.h>

#include <exception>
#include <span>
#include <utility>

#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/collectives/named_bytes.h>
#include <lockstep/parallel/replicas/kept_replica.h>
#include <lockstep/parallel/replicas/loop_parts.h>
#include <lockstep/parallel/replicas/prefixed.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

torch::Tensor bytes_or_none(const torch::Tensor& bytes) {
  return bytes.defined() ? bytes : torch::empty({0}, torch::kUInt8);
}

// The same state, whose generators are tensors. Throws WeightsError for another tensor that is none.
TrainState with_tensors(const TrainState& given) {
  const auto require = [](const std::string& prefix, const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      const auto* const what = !tensor.defined()                    ? "is undefined"
                               : tensor.is_meta()                   ? "has no values"
                               : tensor.layout() != torch::kStrided ? "is sparse"
                                                                    : nullptr;
      if (!what) continue;
      throw WeightsError(fmt::format("{} of the state {}", prefixed(prefix, name), what), kStateHint);
    }
  };
  auto state = given;
  require("model", state.model);
  require("optimizer", state.optimizer);
  for (size_t rank = 0; rank < state.replicas.size(); ++rank) {
    auto& replica = state.replicas[rank];
    require(fmt::format("replica{}.buffers", rank), replica.buffers);
    replica.host_generator = bytes_or_none(replica.host_generator);
    replica.device_generator = bytes_or_none(replica.device_generator);
  }
  return state;
}

// (1 + dimensions) int64: the dtype and the sizes of each tensor, which travel before its values.
std::vector<NamedTensor> forms_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> forms;
  for (const auto& [name, tensor] : tensors) {
    auto numbers = tensor.sizes().vec();
    numbers.insert(numbers.begin(), static_cast<int64_t>(tensor.scalar_type()));
    forms.push_back({name, torch::tensor(numbers, torch::kInt64)});
  }
  return forms;
}

// The inverse: zeros, all of them in the memory of one number.
std::vector<NamedTensor> of_forms(const std::vector<NamedTensor>& forms) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, form] : forms) {
    const std::span numbers(form.const_data_ptr<int64_t>(), static_cast<size_t>(form.numel()));
    const auto sizes = numbers.subspan(1);
    tensors.push_back({name, torch::zeros({}, static_cast<torch::ScalarType>(numbers.front()))
                                 .expand(torch::IntArrayRef(sizes.data(), sizes.size()))});
  }
  return tensors;
}

// The part of a state that every process needs before the values of weights and optimizers come, as one list.
std::vector<NamedTensor> told_first(const TrainState& state) {
  std::vector<NamedTensor> all = {{"steps", torch::full({1}, state.steps, torch::kInt64)}};
  append(all, with_prefix("model", forms_of(state.model)));
  append(all, with_prefix("optimizer", forms_of(state.optimizer)));
  for (size_t rank = 0; rank < state.replicas.size(); ++rank) {
    const auto& replica = state.replicas[rank];
    const auto name = fmt::format("replica{}", rank);
    append(all, with_prefix(name, {{"host", replica.host_generator}, {"device", replica.device_generator}}));
    append(all, with_prefix(name + ".buffers", replica.buffers));
  }
  return all;
}

TrainState state_of_told(const std::vector<NamedTensor>& all) {
  TrainState state;
  state.steps = all.front().tensor.item<int64_t>();
  state.model = of_forms(without_prefix("model", all));
  state.optimizer = of_forms(without_prefix("optimizer", all));
  while (true) {
    const auto own = without_prefix(fmt::format("replica{}", state.replicas.size()), all);
    if (own.empty()) return state;
    state.replicas.push_back({.buffers = without_prefix("buffers", own),
                              .rows_trained = 0,
                              .host_generator = own[0].tensor,
                              .device_generator = own[1].tensor});
  }
}

constexpr const char* kRefused = ".refused";  // the one tensor of a list that process 0 tells instead

// Process 0's state, in other processes with the forms of weights and optimizers alone, or its refusal.
TrainState state_of_first(ReplicaLoop& loop, const TrainState& given) {
  const bool leads = loop.first_rank() == 0;
  TrainState state;
  std::vector<NamedTensor> own = {{kRefused, torch::zeros({1})}};
  std::exception_ptr refused;
  try {
    if (leads) {
      state = with_tensors(given);
      own = told_first(state);
    }
  } catch (const WeightsError&) {  // the other processes wait for the state
    refused = std::current_exception();
  }
  torch::Tensor bytes;
  loop.run([&, packed = to_bytes(own)](int local, Endpoint& endpoint) {
    const auto received = broadcast_bytes(packed, endpoint);
    if (local == 0) bytes = received;
  });
  if (refused) std::rethrow_exception(refused);
  if (leads) return state;
  const auto all = from_bytes(bytes);
  if (all.front().name != kRefused) return state_of_told(all);
  throw WeightsError("process 0 does not take the state that it was given", kStateHint);
}

// A collective: rank 0's values of a tensor.
torch::Tensor values_of_first(const torch::Tensor& saved, Endpoint& endpoint) {
  if (saved.numel() == 0) return saved;
  const auto options = torch::dtype(saved.scalar_type()).device(endpoint.device());
  const auto values = endpoint.rank() == 0 ? saved.detach().to(endpoint.device()).contiguous()
                                           : torch::empty(saved.sizes(), options);
  endpoint.broadcast(values, 0).wait();
  return values;
}

}  // namespace

TrainState ReplicaLoop::state(const TensorAllocator& memory) {
  auto& parts = *parts_;
  parts.compare_batches();
  const bool leads = first_rank() == 0;
  TrainState state;
  state.steps = parts.steps;
  std::vector<torch::Tensor> packed;
  std::vector<NamedTensor> optimizers;
  // Without collectives: every process refuses what it does not know, and can go on.
  parts.workers.run([&](int local) {
    if (local == 0) optimizers = KeptReplica(parts, local).optimizers();
  });
  run([&](int local, Endpoint& endpoint) {
    const torch::NoGradGuard no_grad;
    const KeptReplica replica(parts, local);
    auto own = std::vector<NamedTensor>{{"host", generator_state(torch::kCPU)},
                                        {"device", device_generator_state(endpoint.device())}};
    append(own, with_prefix("buffers", replica.own()));
    auto all = gather_bytes(to_bytes(own), endpoint);
    auto sharded = replica.sharded_optimizers(endpoint, local == 0 && leads ? &memory : nullptr);
    if (local != 0 || !leads) return;
    packed = std::move(all);
    state.model = host_copies(parts.tensors(local, false), memory);
    state.optimizer = host_copies(optimizers, memory);
    append(state.optimizer, std::move(sharded));
  });
  throw_if_aborted(*parts.communicator);
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
  const bool alone = world_size() == local_size();
  const auto state = alone ? with_tensors(given) : state_of_first(*this, given);
  std::vector<std::exception_ptr> refused(static_cast<size_t>(local_size()));
  std::vector<std::string> texts;  // of all ranks; empty where one takes the state
  run([&](int local, Endpoint& endpoint) {
    std::string text;
    try {
      KeptReplica(parts, local).require(state);
    } catch (const Error& error) {  // nothing has changed, and nothing ends
      refused[static_cast<size_t>(local)] = std::current_exception();
      text = error.message();
    }
    auto all = gather_texts(text, endpoint);
    if (local == 0) texts = std::move(all);
  });
  for (const auto& own : refused) {
    if (own) std::rethrow_exception(own);
  }
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    throw WeightsError(fmt::format("rank {} does not take the state: {}", rank, texts[rank]), kStateHint);
  }
  run([&](int local, Endpoint& endpoint) {
    const auto told = [&endpoint](const auto& saved) { return values_of_first(saved, endpoint); };
    KeptReplica(parts, local).take(state, alone ? ValuesOf(own_values) : ValuesOf(told), endpoint);
  });
  parts.workers.synchronize();  // on a GPU a collective may fail after it was queued
  throw_if_aborted(*parts.communicator);
  parts.steps = state.steps;
  parts.rows = 0;
  parts.sums.assign(parts.sums.size(), {});
}

void ReplicaLoop::check_sync() {
  auto& parts = *parts_;
  const auto& group = parts.options.process_group;
  const int process = group ? group->world().process : 0;
  torch::Tensor reports;
  std::vector<NamedTensor> names;
  run([&](int local, Endpoint& endpoint) {
    std::vector<NamedTensor> tensors;
    for (const auto& synced : parts.modules[static_cast<size_t>(local)]) {
      synced.require_present(fmt::format("after {}", counted(parts.steps, "step")));
      append(tensors, with_prefix(synced.name, replicated_tensors(*synced.module, /*batch_norms=*/false)));
    }
    const auto own = sync_report(tensors, endpoint.device(), process);
    const auto all = torch::empty({endpoint.world_size(), own.numel()}, own.options());
    endpoint.all_gather(own, all).wait();
    if (local != 0) return;
    reports = all.cpu();
    names = std::move(tensors);
  });
  require_equal_reports(reports, names, parts.steps);
}

}  // namespace lockstep
