#include <lockstep/parallel/replicas/replica_loop.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include <lockstep/parallel/build_replicas.h>
#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/optimizer/named_state.h>
#include <lockstep/parallel/over_replicas.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replicas/draws_in_turn.h>
#include <lockstep/parallel/replicas/loop_parts.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/training_modes.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>
#include <lockstep/support/quietly.h>
#include <lockstep/support/row_numbers.h>
#include <lockstep/support/shard_sizes.h>

namespace lockstep {
namespace {

ReplicasOptions agreed(ReplicasOptions options) {
  agree(options.process_group.get(), "options of Replicas",
        {fmt::format("seed {}", options.seed), fmt::format("split {}", fmt::join(options.split, ":"))},
        "give the Replicas of all processes the same ones");
  return options;
}

std::string place_of(const Endpoint& endpoint, const std::string& when) {
  return fmt::format("rank {} ({}): {}", endpoint.rank(), endpoint.device().str(), when);
}

// Throws unless the names of its tensors in checkpoints, "name.rest", tell the new one from those before it.
template <class Things>
void require_new_name(const std::string& name, const char* call, const Things& before) {
  if (name.starts_with('.')) {
    throw UsageError(fmt::format("{}() was called with '{}'", call, name), "a name begins with no dot");
  }
  const auto hides = [](const std::string& outer, const std::string& inner) {
    return outer.empty() || inner == outer || inner.starts_with(outer + ".");
  };
  const auto text_of = [](const std::string& own) {
    return own.empty() ? "without a name" : fmt::format("with the name '{}'", own);
  };
  for (const auto& other : before) {
    if (!hides(name, other.name) && !hides(other.name, name)) continue;
    const auto what = name == other.name ? fmt::format("{}() has been called {} already", call, text_of(name))
                                         : fmt::format("{}() was called {} after one {}", call, text_of(name),
                                                       text_of(other.name));
    throw UsageError(what,
                     "give each a name of its own, none of which goes on with a dot after another one; one "
                     "that is alone needs none");
  }
}

// Replicas work at the same time, each on tensors of its own.
void require_separate_modules(const std::vector<torch::nn::Module*>& modules) {
  std::map<const c10::TensorImpl*, size_t> owners;
  for (size_t i = 0; i < modules.size(); ++i) {
    for (const auto& [name, tensor] : distinct_tensors(*modules[i])) {
      if (owners.emplace(tensor.unsafeGetTensorImpl(), i).first->second == i) continue;
      throw UsageError(
          fmt::format("two replicas have one tensor {}: their T share a module, or a part of one", name),
          "build a new module, with all its parts, for each T: in its constructor or in the factory");
    }
  }
}

void agree_on_kept(const ReplicasOptions& options, const char* kind, const std::string& name) {
  agree(options.process_group.get(), "kept optimizers and tensors", {fmt::format("{} '{}'", kind, name)},
        "keep the same ones in all processes, in the same order");
}

}  // namespace

ReplicaLoop::Parts::Parts(ReplicasOptions given)
    : options(agreed(std::move(given))),
      workers(options.devices, options.threads),
      communicator(make_communicator({.devices = options.devices,
                                      .threads = options.threads,
                                      .algorithm = options.algorithm,
                                      .process_group = options.process_group,
                                      .compress = options.compress})),
      modules(options.devices.size()),
      sums(options.devices.size()) {
  shard_sizes(/*rows=*/1, communicator->world_size(), options.split);  // throws for shares that are none
}

ReplicaLoop::ReplicaLoop(ReplicasOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}

ReplicaLoop::~ReplicaLoop() = default;

int ReplicaLoop::world_size() const { return parts_->communicator->world_size(); }
int ReplicaLoop::local_size() const { return parts_->workers.size(); }
int ReplicaLoop::first_rank() const { return parts_->communicator->first_rank(); }
int64_t ReplicaLoop::steps_taken() const { return parts_->steps; }

void ReplicaLoop::build(const std::function<void(int local, Endpoint& endpoint)>& create) {
  int next = 0;
  with_same_draws(local_size(), [&] {
    run([&](int local, Endpoint& endpoint) {
      if (local != next) return;
      const DrawsInTurn turn;
      create(local, endpoint);
    });
    ++next;
  });
}

void ReplicaLoop::end(const std::function<void(int local)>& destroy) noexcept {
  for (const auto& device : parts_->workers.devices()) quietly([&] { synchronize_device(device); });
  quietly([&] {
    parts_->workers.run([&](int local) {
      parts_->modules[static_cast<size_t>(local)].clear();  // which takes its hooks from living modules
      destroy(local);
    });
  });
}

void ReplicaLoop::run(const std::function<void(int local, Endpoint& endpoint)>& task) {
  parts_->workers.run(*parts_->communicator, [&](int local, Endpoint& endpoint) {
    try {
      task(local, endpoint);
    } catch (...) {
      rethrow_at(place_of(endpoint, fmt::format("after {} steps", steps_taken())));
    }
  });
}

void ReplicaLoop::attach(const std::string& name, const OfReplica<torch::nn::Module&>& module,
                         const GradientSyncOptions& options) {
  require_new_name(name, "attach", parts_->modules.front());
  if (options.shard != Shard::kNone) {
    throw UsageError(
        fmt::format("attach() was called with shard {}, but the optimizers of a loop of your own "
                    "update whole parameters",
                    name_of(kShardNames, options.shard)),
        "leave shard out and use a ShardedOptimizer, which shares out the optimizer's state; or use a "
        "Trainer");
  }
  agree(parts_->options.process_group.get(), "names of attached modules", {name},
        "attach the same modules in all processes, in the same order");
  std::vector<torch::nn::Module*> found(parts_->modules.size());
  run([&](int local, Endpoint&) { found[static_cast<size_t>(local)] = &module(local); });
  require_separate_modules(found);
  run([&](int local, Endpoint& endpoint) {
    auto& own = *found[static_cast<size_t>(local)];
    own.to(endpoint.device());
    SyncedModule synced{.name = name,
                        .type = own.name(),
                        .of_replica = [module, local]() -> torch::nn::Module& { return module(local); },
                        .module = &own,
                        .held = own.weak_from_this().lock(),
                        .takes_zeros = options.unused == UnusedParameters::kZero,
                        .sync = std::make_unique<GradientSync>(endpoint, options)};
    synced.sync->attach(own);
    parts_->modules[static_cast<size_t>(local)].push_back(std::move(synced));
  });
}

void ReplicaLoop::keep(const std::string& name, OfReplica<torch::optim::Optimizer&> optimizer) {
  require_new_name(name, "keep", parts_->kept);
  agree_on_kept(parts_->options, "the optimizer", name);
  // Without collectives: every process refuses it, and can go on.
  parts_->workers.run([&](int local) {
    if (local == 0) require_known_optimizer(optimizer(local));
  });
  parts_->kept.push_back({.name = name, .optimizer = std::move(optimizer)});
}

void ReplicaLoop::keep(const std::string& name, OfReplica<ShardedOptimizer&> optimizer) {
  require_new_name(name, "keep", parts_->kept);
  agree_on_kept(parts_->options, "the sharded optimizer", name);
  parts_->kept.push_back({.name = name, .sharded = std::move(optimizer)});
}

void ReplicaLoop::keep(const std::string& name, OfReplica<torch::Tensor&> tensor) {
  require_new_name(name, "keep", parts_->kept);
  agree_on_kept(parts_->options, "the tensor", name);
  parts_->kept.push_back({.name = name, .tensor = std::move(tensor)});
}

void ReplicaLoop::step(const Dealt& batch) {
  auto& parts = *parts_;
  if (parts.modules.front().empty() && world_size() > 1) {
    throw UsageError(
        fmt::format("step() was called with no module attached: {} replicas would train apart", world_size()),
        "call attach(&T::net) before the first step; evaluate() and run() need no attached module");
  }
  parts.run_batch(
      {.kind = ToldBatch::kTraining, .number = parts.steps, .rows = batch.rows, .digest = batch.digest},
      parts.steps, parts.sums, batch.task);
  parts.rows += batch.rows;
  ++parts.steps;
}

NamedSums ReplicaLoop::evaluate(const Dealt& batch) {
  auto& parts = *parts_;
  std::vector<Sums> sums(parts.sums.size());
  parts.run_batch({.kind = ToldBatch::kEvaluation,
                   .number = parts.evaluations++,
                   .rows = batch.rows,
                   .digest = batch.digest},
                  parts.steps, sums, [&](int local, Step& step) {
                    const torch::NoGradGuard no_grad;
                    std::vector<torch::nn::Module*> modules;
                    for (const auto& synced : parts.modules[static_cast<size_t>(local)]) {
                      modules.push_back(synced.module);
                    }
                    const EvaluationMode mode(modules);
                    batch.task(local, step);
                  });
  return parts.gather(sums, batch.rows);
}

// The sums go when they have been gathered: a call that is refused within a step leaves it its own.
NamedSums ReplicaLoop::take_sums() {
  auto& parts = *parts_;
  auto taken = parts.gather(parts.sums, parts.rows);
  parts.sums.assign(parts.sums.size(), Sums());
  parts.rows = 0;
  return taken;
}

void ReplicaLoop::barrier() {
  run([](int, Endpoint& endpoint) { lockstep::barrier(endpoint); });
}

void ReplicaLoop::Parts::run_batch(const ToldBatch& batch, int64_t step, std::vector<Sums>& into,
                                   const Task& task) {
  if (batch.rows <= 0) {
    throw UsageError(fmt::format("a batch of {} rows cannot be dealt to replicas", batch.rows),
                     "leave the step out in all processes");
  }
  const int world = communicator->world_size();
  const auto sizes = shard_sizes(batch.rows, world, options.split);
  const auto tell = batch.to_tensor();
  torch::Tensor told_by_all;
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    Work comparing;
    if (world != workers.size()) {  // the other processes have batches of their own
      const auto own = torch::empty(tell.sizes(), tell.options().device(endpoint.device()));
      upload(tell, own);  // a blocking copy would wait for the step before
      const auto all = torch::empty({world, own.numel()}, own.options());
      comparing = endpoint.all_gather(own, all);
      if (local == 0) told_by_all = all;
    }
    RowRange own{.begin = 0, .rows = sizes[static_cast<size_t>(endpoint.rank())]};
    for (int before = 0; before < endpoint.rank(); ++before) own.begin += sizes[static_cast<size_t>(before)];
    run_replica(
        local, endpoint,
        {.step = step, .rows = batch.rows, .own = own, .evaluates = batch.kind == ToldBatch::kEvaluation},
        into[static_cast<size_t>(local)], task);
    comparing.wait();
  });
  if (told_by_all.defined()) told.add(told_by_all);
  if (told.due()) compare_batches();
}

void ReplicaLoop::Parts::run_replica(int local, Endpoint& endpoint, const Step::Numbers& numbers, Sums& into,
                                     const Task& task) {
  const int64_t draws = numbers.evaluates ? -1 - numbers.step : numbers.step;
  const ReplicaRandom random(options.seed, draws, endpoint.rank());
  Step step(numbers, endpoint, modules[static_cast<size_t>(local)], into);
  try {
    step.require_modules();
    task(local, step);
    step.require_waited();
  } catch (...) {
    rethrow_at(step.place());
  }
}

// Throws in every process if one has had another batch: the shards were not those of one batch.
void ReplicaLoop::Parts::compare_batches() {
  const auto all = told.take();
  if (!all.defined()) return;
  throw_if_aborted(*communicator);
  require_same_batches(all);
}

// The sums travel as [name, bits of the double]: JSON has no NaN.
NamedSums ReplicaLoop::Parts::gather(const std::vector<Sums>& own, int64_t of_rows) {
  compare_batches();
  using Told = std::vector<std::pair<std::string, uint64_t>>;
  std::vector<std::string> texts;
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    Told tell;
    for (const auto& [name, sum] : own[static_cast<size_t>(local)]) {
      tell.emplace_back(name, std::bit_cast<uint64_t>(sum.item<double>()));
    }
    auto all = gather_texts(wire_text(tell), endpoint);
    if (local == 0) texts = std::move(all);
  });
  std::vector<std::pair<std::string, double>> total;
  for (const auto& text : texts) {
    for (const auto& [name, bits] : nlohmann::json::parse(text).get<Told>()) {
      const auto is_it = [&wanted = name](const auto& sum) { return sum.first == wanted; };
      auto found = std::ranges::find_if(total, is_it);
      if (found == total.end()) found = total.insert(found, {name, 0.});
      found->second += std::bit_cast<double>(bits);
    }
  }
  return {of_rows, std::move(total)};
}

}  // namespace lockstep
