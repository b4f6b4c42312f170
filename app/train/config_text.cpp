#include <lockstep/app/train/config_text.h>

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <lockstep/app/cli/config_syntax.h>
#include <lockstep/app/cli/version.h>
#include <lockstep/app/train/combinations.h>
#include <lockstep/data/data_folder.h>

namespace lockstep {
namespace {

constexpr int64_t kBucketMegabyte = 1 << 20;

class ConfigText {
 public:
  void comment(std::string_view words) { text_ += fmt::format("# {}\n", words); }
  void set(const std::string& key, const std::string& value) { text_ += config_line(key, value); }
  void set(const std::string& key, std::string_view value) { set(key, std::string(value)); }
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, double value) { set(key, fmt::format("{}", value)); }  // the same bits
  void set(const std::string& key, bool value) { set(key, value ? "true" : "false"); }
  template <std::integral Int>
  void set(const std::string& key, Int value) {
    set(key, std::to_string(value));
  }
  template <class Value>
  void set(const std::string& key, const std::optional<Value>& value) {
    if (value) set(key, *value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// "cpux2,cuda:0"
std::string list_of(std::span<const torch::Device> devices) {
  std::string list;
  for (auto at = devices.begin(); at != devices.end();) {
    const auto next = std::find_if(at, devices.end(), [&](const auto& device) { return device != *at; });
    const auto same = next - at;
    list += (list.empty() ? "" : ",") + at->str() + (same > 1 ? fmt::format("x{}", same) : "");
    at = next;
  }
  return list;
}

void write_head(const TrainPlan& plan, ConfigText& text) {
  text.comment(version_text());
  if (!plan.world.alone()) {
    text.comment(fmt::format("of {} processes, with the devices {}: start as many",
                             plan.world.place.processes, plan.device_lists()));
  }
  const char* capability = std::getenv("LOCKSTEP_CPU_CAPABILITY");
  if (capability && *capability) text.comment(fmt::format("LOCKSTEP_CPU_CAPABILITY={}", capability));
}

void write_what(const TrainFlags& flags, const TrainPlan& plan, ConfigText& text) {
  text.set("recipe", plan.recipe);
  text.set("model", plan.model);
  const auto folder = data_folder(flags.data);
  text.set("data", folder == kSyntheticData ? folder : std::filesystem::absolute(folder).native());
  text.set("limit-train", flags.limit_train);
  text.set("limit-test", flags.limit_test);
  text.set("limit-steps", flags.limit_steps);
  text.set("epochs", plan.epochs);
  text.set("seed", plan.seed);
}

void write_where(const TrainFlags& flags, const TrainPlan& plan, ConfigText& text) {
  const auto& lists = plan.world.devices;
  const auto same = [&](const auto& list) { return list == plan.trainer.devices; };
  if (plan.world.alone() || std::all_of(lists.begin(), lists.end(), same)) {
    text.set("devices", list_of(plan.trainer.devices));
  }
  if (plan.world.alone() || flags.threads) text.set("threads", plan.trainer.threads);
  text.set("batch-size", plan.batch_size);
  text.set("split", flags.split);
}

void write_update(const TrainFlags& flags, const TrainPlan& plan, ConfigText& text) {
  const auto& optimizer = plan.trainer.replica.optimizer;
  text.set("lr", plan.trainer.lr.lr);
  text.set("optimizer", name_of(kOptimizerNames, optimizer.kind));
  if (optimizer.kind == OptimizerKind::kSgd) {
    text.set("momentum", optimizer.momentum);
    text.set("nesterov", optimizer.nesterov);
  }
  text.set("weight-decay", optimizer.weight_decay);
  text.set("clip-norm", flags.clip_norm);
  text.set("schedule", name_of(kScheduleNames, plan.trainer.lr.schedule));
  text.set("warmup-epochs", plan.warmup_epochs);
}

// --invariant refuses the flags that say how sums are made.
void write_sums(const TrainPlan& plan, ConfigText& text) {
  const auto& trainer = plan.trainer;
  const auto& sync = trainer.replica.sync;
  text.set("sync", name_of(kSyncModeNames, sync.mode));
  if (sync.mode != SyncMode::kParameterwise) text.set("bucket-mb", sync.bucket_bytes / kBucketMegabyte);
  text.set("allreduce", name_of(kAllreduceNames, trainer.allreduce));
  if (trainer.compress != Compress::kNone) text.set("compress", name_of(kCompressNames, trainer.compress));
}

void write_how(const TrainFlags& flags, const TrainPlan& plan, ConfigText& text) {
  const auto& trainer = plan.trainer;
  text.set("precision", name_of(kPrecisionNames, trainer.replica.precision));
  text.set("accumulate", trainer.accumulate);
  text.set("bn", name_of(kBnPolicyNames, trainer.bn));
  if (!trainer.replica.invariant) write_sums(plan, text);
  text.set("kernels", name_of(kKernelsNames, plan.kernels));
  if (any_gpu(trainer.devices)) {
    text.set("cuda-graph", name_of(kCudaGraphNames, trainer.replica.cuda_graph));
  }
  text.set("in-flight", flags.in_flight);
  text.set("deterministic", plan.deterministic);
  text.set("invariant", trainer.replica.invariant);
  text.set("check-sync", trainer.check_sync);
  text.set("log-every", flags.log_every);
}

}  // namespace

std::string config_text(const TrainFlags& flags, const TrainPlan& plan) {
  ConfigText text;
  write_head(plan, text);
  write_what(flags, plan, text);
  write_where(flags, plan, text);
  write_update(flags, plan, text);
  write_how(flags, plan, text);
  return text.take();
}

}  // namespace lockstep
