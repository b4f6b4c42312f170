#include <lockstep/app/train/fields.h>

#include <lockstep/app/report/report.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/models/initialize.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Where a field appears.
constexpr unsigned kInPlan = 1, kInBench = 2, kInSweep = 4, kAgreed = 8;
constexpr unsigned kEverywhere = kInPlan | kInBench | kInSweep | kAgreed;

struct Field {
  const char* key;
  unsigned in;
  Json (*planned)(const TrainPlan&);
  // The shared value where each plan derives its own; null: the planned one.
  Json (*shared)(const TrainFlags&, const Recipe&) = nullptr;
};

Json planned_devices(const TrainPlan& plan) {
  Json devices = Json::array();  // of all processes
  const auto add = [&](const auto& list) {
    for (const auto& device : list) devices.push_back(device.str());
  };
  if (plan.world.alone()) add(plan.trainer.devices);
  for (const auto& list : plan.world.devices) add(list);
  return devices;
}

// The number of replicas of each process.
Json planned_replicas(const TrainPlan& plan) {
  Json replicas = Json::array();
  if (plan.world.alone()) replicas.push_back(plan.local_size());
  for (const auto& list : plan.world.devices) replicas.push_back(list.size());
  return replicas;
}

// "auto", or the number of images in a full batch for each replica.
Json split_of(const TrainPlan& plan) {
  if (plan.trainer.auto_split) return "auto";
  return shard_sizes(plan.batch_size, plan.world_size(), plan.trainer.split);
}

const Field kFields[] = {
    {"recipe", kEverywhere, [](const auto& plan) -> Json { return plan.recipe; }},
    {"model", kEverywhere, [](const auto& plan) -> Json { return plan.model; }},
    {"parameters", kInPlan | kAgreed, [](const auto& plan) -> Json { return plan.parameter_count; }},
    {"initialization", kInPlan | kAgreed,
     [](const auto& plan) -> Json {
       return plan.initialization ? initialization_name(*plan.initialization) : "model";
     }},
    {"data", kEverywhere, [](const auto& plan) -> Json { return plan.data.set.name; }},
    {"data_origin", kInBench | kInSweep, [](const auto& plan) -> Json { return plan.data.origin; }},
    {"train_rows", kEverywhere, [](const auto& plan) -> Json { return plan.data.set.train.size(); }},
    {"test_rows", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.data.set.test.size(); }},
    {"processes", kInPlan, [](const auto& plan) -> Json { return plan.world.place.processes; }},
    {"launcher", kInPlan, [](const auto& plan) -> Json { return plan.world.place.launcher; }},
    {"replicas", kInPlan, planned_replicas},
    {"devices", kInPlan, planned_devices},
    {"threads", kInPlan | kInSweep, [](const auto& plan) -> Json { return plan.trainer.threads; },
     [](const auto& flags, const auto&) { return or_null(flags.threads); }},
    {"batch_size", kInPlan | kInBench | kAgreed, [](const auto& plan) -> Json { return plan.batch_size; },
     [](const auto& flags, const auto& recipe) -> Json {
       return flags.batch_size.value_or(recipe.batch_size);
     }},
    {"split", kInPlan | kInSweep | kAgreed, split_of,
     [](const auto& flags, const auto&) -> Json { return flags.split; }},
    {"epochs", kInPlan | kAgreed, [](const auto& plan) -> Json { return plan.epochs; }},
    {"steps_per_epoch", kInPlan, [](const auto& plan) -> Json { return plan.steps_per_epoch; }},
    {"total_steps", kInPlan | kAgreed, [](const auto& plan) -> Json { return plan.total_steps; }},
    {"limit_steps", kInSweep, nullptr,
     [](const auto& flags, const auto&) { return or_null(flags.limit_steps); }},
    {"optimizer", kEverywhere,
     [](const auto& plan) -> Json { return name_of(kOptimizerNames, plan.trainer.replica.optimizer.kind); }},
    {"lr", kInPlan | kInBench | kAgreed, [](const auto& plan) -> Json { return plan.trainer.lr.lr; },
     [](const auto& flags, const auto& recipe) -> Json {
       return flags.lr.value_or(rate_of(recipe, flags.optimizer));
     }},
    {"schedule", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return name_of(kScheduleNames, plan.trainer.lr.schedule); }},
    {"warmup_epochs", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.warmup_epochs; },
     [](const auto& flags, const auto& recipe) -> Json {
       return flags.warmup_epochs.value_or(recipe.warmup_epochs);
     }},
    {"momentum", kEverywhere,
     [](const auto& plan) -> Json { return plan.trainer.replica.optimizer.momentum; }},
    {"nesterov", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.trainer.replica.optimizer.nesterov; }},
    {"weight_decay", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.trainer.replica.optimizer.weight_decay; }},
    {"clip_norm", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.trainer.replica.clip_norm; },
     [](const auto& flags, const auto&) { return or_null(flags.clip_norm); }},
    {"accumulate", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.trainer.accumulate; }},
    {"precision", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return name_of(kPrecisionNames, plan.trainer.replica.precision); }},
    {"sync", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return name_of(kSyncModeNames, plan.trainer.replica.sync.mode); }},
    {"bucket_bytes", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.trainer.replica.sync.bucket_bytes; }},
    {"kernels", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return name_of(kKernelsNames, plan.kernels); }},
    {"cuda_graph", kInPlan | kInSweep,
     [](const auto& plan) -> Json { return name_of(kCudaGraphNames, plan.trainer.replica.cuda_graph); },
     [](const auto& flags, const auto&) -> Json { return name_of(kCudaGraphNames, flags.cuda_graph); }},
    {"in_flight", kInPlan | kInSweep, [](const auto& plan) -> Json { return steps_in_flight(plan.trainer); },
     [](const auto& flags, const auto&) { return or_null(flags.in_flight); }},
    {"allreduce", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return name_of(kAllreduceNames, plan.trainer.allreduce); },
     [](const auto& flags, const auto&) -> Json {
       return name_of(kAllreduceNames, flags.allreduce.value_or(Allreduce::kAuto));
     }},
    {"compress", kInPlan | kAgreed,
     [](const auto& plan) -> Json { return name_of(kCompressNames, plan.trainer.compress); }},
    {"wire_bytes", kInPlan, [](const auto& plan) -> Json { return or_null(plan.wire_bytes()); }},
    {"bn", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return name_of(kBnPolicyNames, plan.trainer.bn); }},
    {"deterministic", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.deterministic; }},
    {"invariant", kInPlan | kInSweep | kAgreed,
     [](const auto& plan) -> Json { return plan.trainer.replica.invariant; }},
    {"on_nan", kAgreed, nullptr,
     [](const auto& flags, const auto&) -> Json { return name_of(kOnNanNames, flags.on_nan); }},
    {"check_sync", kInPlan | kAgreed, [](const auto& plan) -> Json { return plan.trainer.check_sync; }},
    {"seed", kInPlan | kInSweep | kAgreed, [](const auto& plan) -> Json { return plan.seed; }},
    {"dry_run", kAgreed, nullptr, [](const auto& flags, const auto&) -> Json { return flags.dry_run; }},
    {"print_config", kAgreed, nullptr,
     [](const auto& flags, const auto&) -> Json { return flags.print_config; }},
    {"memory_estimate_bytes", kInPlan, [](const auto& plan) -> Json { return plan.memory_estimate; }},
};

}  // namespace

Json plan_fields(const TrainPlan& plan) {
  Json json;
  for (const auto& field : kFields) {
    if (field.in & kInPlan) json[field.key] = field.planned(plan);
  }
  return json;
}

Json agreed_fields(const TrainFlags& flags, const TrainPlan& plan) {
  Json json;
  for (const auto& field : kFields) {
    if (!(field.in & kAgreed)) continue;
    json[field.key] = field.planned ? field.planned(plan) : field.shared(flags, find_recipe(flags.recipe));
  }
  return json;
}

Json shared_fields(SettingsOf settings, const TrainFlags& flags, const TrainPlan& plan) {
  const auto& recipe = find_recipe(flags.recipe);
  const unsigned wanted = settings == SettingsOf::kBench ? kInBench : kInSweep;
  Json json;
  for (const auto& field : kFields) {
    if (field.in & wanted) json[field.key] = field.shared ? field.shared(flags, recipe) : field.planned(plan);
  }
  return json;
}

}  // namespace lockstep
