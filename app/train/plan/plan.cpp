#include <lockstep/app/train/plan/plan.h>

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/train/plan/first_pass.h>
#include <lockstep/app/train/plan/labels.h>
#include <lockstep/app/train/plan/pixels.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/plan/start.h>
#include <lockstep/data/held_out.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/batches.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/split_text.h>

namespace lockstep {
namespace {

void set_devices(const TrainFlags& options, TrainPlan& plan) {
  auto& trainer = plan.trainer;
  const auto& world = plan.world;
  trainer.process_group = world.process_group;
  trainer.devices = world.single_process() ? usable_devices(options.devices)
                                           : world.devices.at(static_cast<size_t>(world.place.process));
  trainer.threads = replica_threads(trainer);
}

void set_epochs(const TrainFlags& options, const Recipe& recipe, TrainPlan& plan) {
  plan.epochs = options.epochs.value_or(recipe.epochs);
  plan.warmup_epochs = options.warmup_epochs.value_or(recipe.warmup_epochs);
  if (plan.trainer.lr.schedule == Schedule::kOneCycle)
    plan.warmup_epochs = 0;  // a recipe's: it rises by itself
  if (plan.warmup_epochs == 0 || plan.warmup_epochs < plan.epochs) return;
  // A recipe's warm-up is dropped in a short run. A given one is an error.
  if (options.warmup_epochs) {
    throw UsageError(fmt::format("--warmup-epochs {} must be below --epochs, which is {}", plan.warmup_epochs,
                                 plan.epochs),
                     "warm up for fewer epochs than the run has");
  }
  plan.warmup_epochs = 0;
}

void set_batches(const TrainFlags& options, const Recipe& recipe, TrainPlan& plan) {
  const int64_t devices = recipe.per_device ? plan.world_size() : 1;
  plan.batch_size = options.batch_size.value_or(recipe.batch_size * devices);
  plan.steps_per_epoch = batches_of(plan.data.set.train.rows, plan.batch_size);
  plan.total_steps = plan.steps_per_epoch * plan.epochs;
  if (options.limit_steps) plan.total_steps = std::min(plan.total_steps, *options.limit_steps);

  plan.usual_lr = rate_of(recipe, plan.trainer.replica.optimizer.kind) * static_cast<double>(devices);
  auto& lr = plan.trainer.lr;
  lr.lr = options.lr.value_or(plan.usual_lr);
  lr.total_steps = plan.steps_per_epoch * plan.epochs;
  lr.warmup_steps = plan.steps_per_epoch * plan.warmup_epochs;
  lr.exponential.every = plan.steps_per_epoch;
}

// Resolves what was left to lockstep, for options that make sense.
void set_engine(const TrainFlags& options, TrainPlan& plan) {
  auto& trainer = plan.trainer;
  auto& replica = trainer.replica;
  trainer.allreduce = plan.world.chosen_allreduce(trainer.allreduce, trainer.devices);
  if (trainer.compress != Compress::kNone) trainer.allreduce = Allreduce::kGloo;  // whose sums can
  plan.deterministic = options.deterministic;
  plan.kernels = options.kernels;
  const bool exchanges_statistics = trainer.bn == BnPolicy::kSync && plan.world_size() > 1;
  const bool fetches =
      trainer.shard != Shard::kNone && plan.world_size() > 1 && replica.cuda_graph == CudaGraph::kAuto;
  if (!any_gpu(trainer.devices) || options.trace || replica.invariant || trainer.auto_split ||
      exchanges_statistics || fetches || replica.precision == Precision::kFp16) {
    replica.cuda_graph = CudaGraph::kOff;  // no GPU, or steps that cannot be replayed as a whole
  }
}

void set_factory(const TrainFlags& options, const Recipe& recipe, TrainPlan& plan) {
  plan.model = options.model.value_or(std::string(recipe.model));
  plan.data.set = as_images(std::move(plan.data.set), plan.model, plan.pixels.normalization);
  auto spec = model_spec(plan.model, plan.data.set);
  spec.seed = plan.trainer.seed;
  spec.kernels = plan.kernels;
  spec.label_smoothing = plan.label_smoothing;
  spec.class_weights = plan.class_weights;
  if (plan.model == recipe.model) spec.initialization = recipe.initialization;
  plan.initialization = spec.initialization;
  plan.factory = make_model_factory(spec);
}

// The program, before the data are read: its errors come first.
void set_program(const TrainFlags& options, TrainPlan& plan) {
  if (!options.program) return;
  plan.model = kProgramModel;
  plan.program = open_program(*options.program);
  plan.loss = options.loss.value_or(LossChoice());
  plan.factory = program_model(plan.program, *plan.loss, {}, plan.kernels);
  plan.has_batch_norm = plan.program->has_batch_norm();
  check_program(plan);
  auto& graph = plan.trainer.replica.cuda_graph;
  if (graph == CudaGraph::kAuto && !plan.program->captures()) graph = CudaGraph::kOff;
}

void set_validation(const TrainFlags& options, TrainPlan& plan) {
  plan.validation_share = options.validation_share;
  plan.patience = options.patience;
  if (!options.validation_share) return;
  auto& data = plan.data;
  hold_out(data.set, *options.validation_share, options.trainer.seed);
  data.train_hash = data.set.train.hash_of_first(data.set.train.rows);
  if (plan.program) check_evaluation_rows(*plan.program, data.set.validation->rows);
}

// The loss's terms, whose weights need the data: a program's factory is made anew with them.
void set_loss_terms(const TrainFlags& options, TrainPlan& plan) {
  plan.label_smoothing = options.label_smoothing;
  if (options.class_weights == ClassWeights::kBalanced) plan.class_weights = balanced_weights(plan.data.set);
  if (!plan.program || (plan.label_smoothing == 0 && plan.class_weights.empty())) return;
  plan.factory = program_model(plan.program, *plan.loss,
                               {.label_smoothing = plan.label_smoothing, .class_weights = plan.class_weights},
                               plan.kernels);
}

// Weights of a file, and parameters that stay as they are.
void set_start(const TrainFlags& options, TrainPlan& plan) {
  if (!options.init_from && !options.freeze) return;
  const auto model = plan.factory();
  if (options.init_from) plan.start = read_start(*options.init_from, *model.module);
  if (options.freeze) plan.frozen = frozen_names(*options.freeze, *model.module);
  plan.factory = with_start(std::move(plan.factory),
                            plan.start ? plan.start->tensors : std::vector<NamedTensor>(), plan.frozen);
}

// Sets the factory and the figures of the model. Returns one such model.
Model set_model(const TrainFlags& options, const Recipe& recipe, TrainPlan& plan) {
  set_loss_terms(options, plan);
  if (!plan.program) set_factory(options, recipe, plan);
  set_start(options, plan);
  auto model = plan.factory();
  plan.metrics = model.metrics;
  std::vector<int64_t> trained;  // the sizes of parameters
  for (const auto& param : model.module->parameters()) {
    plan.parameter_count += param.numel();
    if (param.requires_grad()) {
      trained.push_back(param.numel());
    } else {
      plan.frozen_count += param.numel();
    }
  }
  const auto& replica = plan.trainer.replica;
  plan.largest_bucket = largest_bucket(trained, plan.element_bytes(), replica.sync);
  plan.largest_neighbours = largest_neighbours(trained, plan.element_bytes(), replica.sync);
  plan.keeps_bf16_weights =
      replica.precision == Precision::kBf16 && model.use_bf16_weights && plan.frozen_count == 0;
  if (!plan.program) plan.has_batch_norm = !model.module->buffers().empty();
  return model;
}

// Without rows the first replica's batch-norm statistics would stay those of the initial weights.
void check_root_trains(const TrainFlags& options, const TrainPlan& plan) {
  if (!plan.has_batch_norm || plan.trainer.bn != BnPolicy::kRoot || plan.step_sizes().front() > 0) return;
  throw UsageError(
      fmt::format("--split {} gives the first replica no {} of a batch of {}, but {} is evaluated with that "
                  "replica's batch-norm statistics (--bn root)",
                  options.split, plan.data.set.row_noun, with_commas(plan.batch_size), plan.model),
      "use --bn sync or --bn average, or give the first replica a share");
}

TrainPlan plan_without_data(const TrainFlags& options, const TrainWorld& world) {
  const auto& recipe = recipe_of(options);
  TrainPlan plan;
  plan.world = world;
  plan.recipe = recipe.name;
  plan.keeps_checkpoints = options.checkpoint_every && world.leads();
  plan.trainer = trainer_options_of(options, recipe);
  set_devices(options, plan);
  plan.trainer.validate(plan.world_size());
  set_engine(options, plan);
  set_epochs(options, recipe, plan);
  return plan;
}

}  // namespace

std::vector<double> parse_shares(const std::string& text) {
  std::vector<double> shares;
  for (const auto part : split_text(text, ':')) {
    const auto share = parse_number<double>(part);
    if (!share) {
      throw UsageError(fmt::format("--split must be even, auto or numbers like 3:1, got {}", in_quotes(text)),
                       "give one number per replica, with ':' between them, or leave --split out");
    }
    shares.push_back(*share);
  }
  return shares;
}

TrainerOptions trainer_options_of(const TrainFlags& flags, const Recipe& recipe) {
  auto trainer = flags.trainer;
  auto& sync = trainer.replica.sync;
  auto& optimizer = trainer.replica.optimizer;
  trainer.auto_split = flags.split == "auto";
  if (flags.split != "even" && !trainer.auto_split) trainer.split = parse_shares(flags.split);
  trainer.allreduce = flags.allreduce.value_or(Allreduce::kAuto);
  if (flags.sync) sync.mode = *flags.sync;
  if (flags.bucket_mb) sync.bucket_bytes = *flags.bucket_mb * kBytesPerMb;
  optimizer.momentum = flags.momentum.value_or(optimizer.kind == OptimizerKind::kSgd ? recipe.momentum : 0);
  optimizer.weight_decay = flags.weight_decay.value_or(recipe.weight_decay);
  auto& lr = trainer.lr;  // set_batches() adds what depends on the number of steps
  lr.schedule = flags.schedule.value_or(recipe.schedule);
  lr.exponential.gamma = flags.gamma.value_or(lr.exponential.gamma);
  lr.plateau.factor = flags.gamma.value_or(lr.plateau.factor);
  lr.plateau.patience = flags.plateau_patience.value_or(lr.plateau.patience);
  return trainer;
}

void check_train_values(const TrainFlags& options) { plan_without_data(options, {}); }

TrainPlan make_train_plan(const TrainFlags& options, std::optional<LoadedData> data,
                          const TrainWorld& world) {
  const auto& recipe = recipe_of(options);
  // First what needs no data: its errors come before the data are read.
  auto plan = plan_without_data(options, world);
  set_program(options, plan);
  set_arithmetic(plan.trainer.replica.precision, plan.deterministic);
  plan.data = data ? std::move(*data)
                   : load_data(options.data, options.trainer.seed, {}, world.place.processes_on_host);
  plan.as_read = plan.data;
  plan.facts = facts_of(plan.data.set);  // before a network gets floats of its bytes
  set_validation(options, plan);
  set_pixels(options, plan);
  if (plan.program) {
    plan.data.set = as_inputs(std::move(plan.data.set), *plan.program, plan.pixels.normalization);
  }
  set_batches(options, recipe, plan);
  check_program_rows(plan);
  int64_t fixed_bytes = 0;  // of each replica
  {
    const auto model = set_model(options, recipe, plan);
    check_root_trains(options, plan);
    if (plan.program) {
      const auto step = try_program(plan, model);
      plan.measured_row_bytes = step.per_row;
      fixed_bytes = step.fixed;
    } else {
      touch_kernels(plan, model);
    }
  }  // frees the model before memory is measured
  // Resident now: the program, its libraries, its kernels, the data.
  const auto on_cpus =
      std::ranges::count_if(plan.trainer.devices, [](const auto& one) { return one.is_cpu(); });
  plan.memory_estimate = resident_bytes() + host_bytes(plan) + fixed_bytes * on_cpus;
  return plan;
}

}  // namespace lockstep
