// Trainer::state() and Trainer::load().
#include <torch/nn/module.h>

#include <fmt/format.h>
#include <cmath>
#include <exception>
#include <set>
#include <string>
#include <utility>

#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/load_state.h>
#include <lockstep/parallel/training/loss_scale.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/parallel/training/split_tuner.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/support/error.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

constexpr const char* kHint = "this is the state of another model, precision or optimizer";
constexpr int64_t kMostSteps = int64_t{1} << 53;  // doubles tell them to the other processes
constexpr int64_t kMostRows = int64_t{1} << 46;   // of a replica: the sum over replicas has 63 bits

// The parameters whose state these tensors of an optimizer are: "momentum_buffer.inner" is of "inner".
std::set<std::string> params_of(const std::vector<NamedTensor>& kept) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : kept) {
    if (const auto dot = name.find('.'); dot != std::string::npos) names.insert(name.substr(dot + 1));
  }
  return names;
}

// Throws a WeightsError that says so when the optimizers are alike, but parameters have been frozen or
// unfrozen since.
void require_same_trained(const torch::nn::Module& module, const std::vector<NamedTensor>& into,
                          const std::vector<NamedTensor>& from) {
  const auto here = params_of(into), there = params_of(from);
  auto rest = there;  // left over once parameters are taken away
  std::string what;
  for (const auto& [name, tensor] : distinct_parameters(module)) {
    rest.erase(name);
    if (here.contains(name) == there.contains(name) || !what.empty()) continue;
    what = fmt::format("parameter {} {}", name,
                       there.contains(name) ? "was trained when the state was saved, but is frozen here"
                                            : "was frozen when the state was saved, but is trained here");
  }
  if (what.empty() || !rest.empty() || here.empty() || there.empty()) return;
  throw WeightsError(what,
                     "before load() call requires_grad_() on every replica, so that the same parameters are "
                     "trained as when the state was saved");
}

void require_shares(const std::vector<double>& split) {
  if (split.empty()) return;
  try {
    shard_sizes(/*rows=*/1, static_cast<int>(split.size()), split);
  } catch (const UsageError& error) {
    throw WeightsError(fmt::format("the state has no shares of a batch: {}", error.message()), kHint);
  }
}

// here: the tensors of an average; none without TrainerOptions::ema.
void require_average(const std::vector<NamedTensor>& here, const std::vector<NamedTensor>& kept) {
  if (kept.empty()) return;
  if (here.empty()) {
    throw WeightsError(
        "the state has an average of the weights, but " + NamedOption{.key = "ema"} + " is 0 here",
        "set " + NamedOption{.key = "ema"} +
            ", or clear TrainState::average: evaluations then use the weights");
  }
  require_same_tensors_and_types(here, kept, {.name = "average", .parts = "parameters", .hint = kHint});
}

void require_lr(const LrState& lr) {
  const auto require = [](bool fits, const char* name, auto value, const char* expected) {
    if (fits) return;
    throw WeightsError(fmt::format("the state's lr has {} {}, {} was expected", name, value, expected),
                       kHint);
  };
  require(lr.factor > 0 && lr.factor <= 1, "factor", lr.factor, "a number above 0 and at most 1");
  require(!lr.best || std::isfinite(*lr.best), "best", lr.best.value_or(0), "a finite number");
  require(lr.bad_losses >= 0 && lr.bad_losses <= kMostSteps, "bad_losses", lr.bad_losses, "a count");
  require(!lr.fixed || is_rate(*lr.fixed), "fixed", lr.fixed.value_or(0), "a number from 0");
}

void require_loss_scale(const LossScaleState& state) {
  const auto is_count = [](int64_t number) { return number >= 0 && number <= kMostSteps; };
  if (state.scale >= kLeastLossScale && std::isfinite(static_cast<float>(state.scale)) &&
      is_count(state.good_steps) && is_count(state.updates) && is_count(state.steps) &&
      state.updates <= state.steps) {
    return;
  }
  throw WeightsError(
      fmt::format("the state has the loss scale {} after {} updates in {} steps, {} good ones: a finite "
                  "number from 2^-16 and three counts were expected, with no more updates than steps",
                  state.scale, state.updates, state.steps, state.good_steps),
      kHint);
}

}  // namespace

TrainState Trainer::state(const TensorAllocator& memory) {
  const torch::NoGradGuard no_grad;
  const bool leads = first_rank() == 0;
  require_same_history(CommonCall::kState);
  follow_requires_grad();
  TrainState state;
  auto weights = copies_of(0, /*averaged=*/false, leads ? &memory : nullptr);
  state.steps = steps_taken_;
  state.lr = lr_state_;
  state.loss_scale = loss_scale();
  // After the error of a scale that has fallen below the least one, which ends no trainer.
  if (state.loss_scale) state.loss_scale->scale = std::max(state.loss_scale->scale, kLeastLossScale);
  if (tuner_ && tuner_->settled()) state.split = tuner_->shares();
  std::vector<torch::Tensor> packed;
  std::vector<NamedTensor> buffers;
  // Without a collective: where the state is not known, every process refuses it and can go on.
  workers_.run([&](int local) {
    if (local == 0) replicas_.front()->optimizer().require_known_state();
  });
  workers_.run(*communicator_, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    auto& replica = *replicas_[i];
    const auto all = gather_bytes(pack(replica.own_state()), endpoint);
    const auto* const keeps = leads && local == 0 ? &memory : nullptr;
    auto optimizer = replica.optimizer().host_copies(keeps);
    auto average = replica.average_copies(keeps);
    if (local != 0) return;
    packed = all;
    buffers = host_buffers(*models_[i].module);
    state.optimizer = std::move(optimizer);
    state.average = std::move(average);
  });
  throw_if_aborted();
  for (const auto& bytes : packed) state.replicas.push_back(unpack(bytes, buffers));
  state.model = std::move(weights);
  return state;
}

void Trainer::require_fitting(const TrainState& state) {
  const auto& module = *models_.front().module;
  require_same_tensors_and_types(distinct_tensors(module), state.model,
                                 {.name = "model", .parts = "parameters and buffers", .hint = kHint});
  std::vector<NamedTensor> kept, average;
  workers_.run([&](int local) {
    if (local != 0) return;
    kept = replicas_.front()->optimizer().expected(state.optimizer);
    average = replicas_.front()->expected_average();
  });
  require_same_trained(module, kept, state.optimizer);
  require_same_tensors_and_types(kept, state.optimizer,
                                 {.name = "optimizer", .parts = "tensors", .hint = kHint});
  require_average(average, state.average);
  for (const auto& replica : state.replicas) {
    require_same_tensors_and_types(host_buffers(module), replica.buffers,
                                   {.name = "replica", .parts = "buffers", .hint = kHint});
    if (replica.rows_trained < 0 || replica.rows_trained > kMostRows) {
      throw WeightsError(fmt::format("a replica of the state has trained {} rows, 0 to {} were expected",
                                     replica.rows_trained, kMostRows),
                         kHint);
    }
    for (const auto& device : workers_.devices()) require_generators(device, replica);
  }
  if (state.steps < 0 || state.steps > kMostSteps) {
    throw WeightsError(fmt::format("the state is of step {}, 0 to {} were expected", state.steps, kMostSteps),
                       kHint);
  }
  require_lr(state.lr);
  if (state.loss_scale) require_loss_scale(*state.loss_scale);
  require_shares(state.split);
}

void Trainer::load(const TrainState& state) {
  const torch::NoGradGuard no_grad;
  wait_for_steps(0);
  require_same_history(CommonCall::kLoad);
  follow_requires_grad();
  require_held_parameters();
  const bool leads = first_rank() == 0;
  StateNumbers numbers{.steps = state.steps, .lr = state.lr, .loss_scale = state.loss_scale};
  torch::Tensor table;
  std::exception_ptr refused;
  if (leads) {
    try {
      require_fitting(state);
      table = pack_replicas(state, world_size(), host_buffers(*models_.front().module));
      numbers.replica_bytes = table.size(1);
      if (tuner_ && state.split.size() == static_cast<size_t>(world_size())) numbers.split = state.split;
      numbers.steps_by_parameter = counts_steps_by_parameter(state.optimizer);
      numbers.has_average = !state.average.empty();
      numbers.fits = true;
    } catch (const WeightsError&) {
      refused = std::current_exception();
    }
  }
  const auto own = numbers.to_tensor(world_size());
  numbers = StateNumbers::from_tensor(
      gather_over_ranks([&](size_t i) { return own.to(workers_.devices()[i]); })[0]);
  if (refused) std::rethrow_exception(refused);
  if (!numbers.fits) throw WeightsError("process 0 does not take the state that it was given", kHint);

  workers_.run(*communicator_, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    auto& replica = *replicas_[i];
    const auto& module = *models_[i].module;
    if (endpoint.rank() == 0) {
      load_tensors(distinct_tensors(module), state.model,
                   {.name = "model", .parts = "tensors", .hint = kHint});
    }
    const auto bytes = scatter_rows(table, numbers.replica_bytes, endpoint);
    const auto own_state = unpack(bytes, host_buffers(module));
    replica.take_state(own_state, state, numbers);
    set_generators(local, options_.devices, own_state);
  });
  throw_if_aborted();
  steps_taken_ = numbers.steps;
  lr_state_ = numbers.lr;
  rows_ = 0;
  times_ = {};
  if (!tuner_) return;
  tuner_ = std::make_unique<SplitTuner>(world_size());  // starts again where no shares were found
  if (!numbers.split.empty()) tuner_->settle(numbers.split);
}

}  // namespace lockstep
