// Where it is trained: the replicas, and the batch that they share.
#include <CLI/CLI.hpp>

#include <algorithm>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/train/settings/setting.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/split_batch.h>

namespace lockstep {
namespace {

CLI::Option* add_devices(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.devices,
                  "One replica per entry: auto, cpu, cpux2, cuda, cuda:0,cuda:1, cuda:0x2")
      ->type_name("LIST");
}

CLI::Option* add_threads(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.threads, "Threads of each replica (default: cores / replicas)")
      ->check(thread_count());
}

CLI::Option* add_batch_size(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.batch_size, "Images per step over all replicas (default: the recipe's)")
      ->check(positive_int(kMaxRows));
}

CLI::Option* add_split(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(
          flag, flags.split,
          "Shares of the batch: even, 3:1 (one number per replica, over all processes), or auto, found "
          "by timing")
      ->type_name("SHARES");
}

// The devices of all processes.
Json planned_devices(const TrainPlan& plan) {
  auto devices = Json::array();
  const auto add = [&](const auto& list) {
    for (const auto& device : list) devices.push_back(device.str());
  };
  if (plan.world.single_process()) add(plan.trainer.devices);
  for (const auto& list : plan.world.devices) add(list);
  return devices;
}

// The number of replicas of each process.
Json planned_replicas(const TrainPlan& plan) {
  auto replicas = Json::array();
  if (plan.world.single_process()) replicas.push_back(plan.local_size());
  for (const auto& list : plan.world.devices) replicas.push_back(list.size());
  return replicas;
}

// "auto", or the number of images in a full batch for each replica.
Json planned_split(const TrainPlan& plan) {
  if (plan.trainer.auto_split) return "auto";
  return shard_sizes(plan.batch_size, plan.world_size(), plan.trainer.split);
}

// Each process may have devices of its own.
Json configured_devices(const TrainFlags&, const TrainPlan& plan) {
  const auto& lists = plan.world.devices;
  const auto same = [&](const auto& list) { return list == plan.trainer.devices; };
  if (!plan.world.single_process() && !std::all_of(lists.begin(), lists.end(), same)) return {};
  return spec_of(plan.trainer.devices);
}

Json given_threads(const TrainFlags& flags, const TrainPlan&) { return or_null(flags.trainer.threads); }

Json configured_threads(const TrainFlags& flags, const TrainPlan& plan) {
  return plan.world.single_process() ? Json(replica_threads(plan.trainer)) : given_threads(flags, plan);
}

constexpr Setting kReplicaSettings[] = {
    {.name = "processes",
     .in = kInPlan,
     .planned = [](const auto& plan) -> Json { return plan.world.place.processes; }},
    {.name = "launcher",
     .in = kInPlan,
     .planned = [](const auto& plan) -> Json { return plan.world.place.launcher; }},
    {.name = "replicas", .in = kInPlan, .planned = planned_replicas},
    {.name = "devices",
     .commands = kTrain,
     .group = HelpGroup::kReplicas,
     .add = add_devices,
     .in = kInPlan | kInConfig,
     .planned = planned_devices,
     .config = configured_devices,
     .depends_on_place = true},
    {.name = "threads",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kReplicas,
     .add = add_threads,
     .in = kInPlan | kInSweep | kInConfig,
     .planned = [](const auto& plan) -> Json { return replica_threads(plan.trainer); },
     .given = [](const auto& flags, const auto&) { return or_null(flags.trainer.threads); },
     .config = configured_threads,
     .kept = given_threads,
     .on_resume = OnResume::kChangesBits,
     .depends_on_place = true},
    {.name = "batch-size",
     .commands = kTrain | kBench,
     .group = HelpGroup::kReplicas,
     .add = add_batch_size,
     .in = kInPlan | kInBench | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.batch_size; },
     .given = [](const auto& flags, const auto& recipe) -> Json {
       return flags.batch_size.value_or(recipe.batch_size);
     },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "split",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kReplicas,
     .add = add_split,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = planned_split,
     .given = [](const auto& flags, const auto&) -> Json { return flags.split; },
     .config = [](const auto& flags, const auto&) -> Json { return flags.split; },
     .on_resume = OnResume::kChangesBits,
     .depends_on_place = true},
    {.name = "steps-per-epoch",
     .in = kInPlan,
     .planned = [](const auto& plan) -> Json { return plan.steps_per_epoch; }},
    {.name = "total-steps",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.total_steps; }},
};

}  // namespace

std::span<const Setting> replica_settings() { return kReplicaSettings; }

}  // namespace lockstep
