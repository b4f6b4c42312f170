#include <lockstep/app/train/plan/notices.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/models/costs.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/collectives/peer_notice.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cpu/capability.h>

namespace lockstep {
namespace {

// Above this multiple of the usual rate there is a warning. SGD's .1 with AdamW, whose rate is .001, is 100
// times.
constexpr double kManyTimes = 30;

}  // namespace

std::optional<std::string> many_threads_notice(std::optional<int> threads) {
  const auto cores = static_cast<int>(allowed_cores().size());
  if (threads.value_or(1) <= cores) return std::nullopt;
  return fmt::format(
      "--threads {} is more than the {} of this process: the threads of a replica wait for each other",
      *threads, counted(cores, "core"));
}

std::optional<std::string> few_threads_notice(std::optional<int> threads,
                                              std::span<const torch::Device> devices) {
  if (!any_cpu(devices)) return std::nullopt;
  const int share = static_cast<int>(allowed_cores().size() / devices.size());
  const int granted = granted_threads(share);
  if (granted == share || threads.value_or(granted) < granted) return std::nullopt;
  return fmt::format("OMP_THREAD_LIMIT grants each replica {}, which leaves cores idle: there are {} for it",
                     counted(granted, "thread"), share);
}

std::optional<std::string> rate_notice(const TrainPlan& plan) {
  const double lr = plan.trainer.lr.lr;
  if (lr < kManyTimes * plan.usual_lr) return std::nullopt;
  return fmt::format(
      "a learning rate of {:.6g} is {:.4g} times the {:.6g} that {} uses with {}: training may diverge", lr,
      lr / plan.usual_lr, plan.usual_lr, plan.recipe,
      name_of(kOptimizerNames, plan.trainer.replica.optimizer.kind));
}

std::optional<std::string> bf16_notice(const TrainPlan& plan) {
  if (!any_cpu(plan.trainer.devices) || plan.trainer.replica.precision != Precision::kBf16 ||
      plan.stays_in_fp32(torch::kCPU) || has_capability(CpuCapability::kAvx512))
    return std::nullopt;
  return "--precision bf16 on a CPU without AVX-512: torch computes convolutions in bf16 many times slower "
         "than in fp32 there";
}

std::optional<std::string> fp16_notice(const TrainPlan& plan) {
  if (!any_cpu(plan.trainer.devices) || plan.trainer.replica.precision != Precision::kFp16 ||
      plan.stays_in_fp32(torch::kCPU))
    return std::nullopt;
  return "--precision fp16 on a CPU: torch computes in fp16 many times slower than in fp32 there";
}

std::optional<std::string> shard_notice(const TrainPlan& plan) {
  const auto& trainer = plan.trainer;
  if (trainer.shard != Shard::kOptimizer || plan.world_size() == 1) return std::nullopt;
  if (trainer.ema > 0 || moments_of(trainer.replica.optimizer) > 0) return std::nullopt;
  return "--shard optimizer shares out nothing: SGD without momentum keeps nothing beside the weights";
}

std::vector<std::string> batch_notices(const TrainPlan& plan) {
  std::vector<std::string> notices;
  const auto shards = plan.step_sizes();
  const auto batch = std::reduce(shards.begin(), shards.end());
  if (plan.world_size() > batch) {
    notices.push_back(fmt::format("{} share a batch of {}: some of them compute nothing",
                                  counted(plan.world_size(), "replica"),
                                  counted(batch, plan.data.set.row_noun)));
  }
  int64_t smallest = batch;  // of the shards with rows
  for (const auto rows : shards) {
    if (rows > 0) smallest = std::min(smallest, rows);
  }
  if (plan.trainer.accumulate > smallest) {
    notices.push_back(fmt::format(
        "--accumulate {} is more than the {} of the smallest shard: its micro-batches have one each",
        plan.trainer.accumulate, counted(smallest, plan.data.set.row_noun)));
  }
  return notices;
}

std::vector<std::string> task_notices(const TrainPlan& plan) {
  auto notices = plan.data.notices;
  const bool classifies =
      !plan.program || plan.loss.value_or(LossChoice()).loss == ProgramLoss::kClassification;
  if (classifies)
    notices.insert(notices.end(), plan.data.class_notices.begin(), plan.data.class_notices.end());
  if (!plan.program) {
    for (auto& notice : pixel_notices(plan.as_read.set)) notices.push_back(std::move(notice));
  }
  if (plan.program) {
    if (auto notice = eval_form_notice(*plan.program)) notices.push_back(std::move(*notice));
  }
  if (plan.start && plan.facts) {
    if (auto notice = pixels_notice(*plan.start, *plan.facts)) notices.push_back(std::move(*notice));
  }
  const auto& set = plan.data.set;
  for (const auto* faults : {&set.train_faults, &set.test_faults}) {
    auto notice = not_finite_notice(*faults);
    if (!notice) continue;
    notices.push_back(std::move(*notice));
    break;
  }
  return notices;
}

std::vector<std::string> pixel_notices(const TrainingData& data) {
  constexpr int64_t kLookedAt = 64;  // rows
  constexpr double kLarge = 100;     // of pixels as bytes, in floats
  constexpr int64_t kLeastSide = 8;
  if (data.spec.empty()) return {};
  const auto& image = data.spec.front();
  const auto& shape = image.row_shape;
  if (image.role != Role::kInput || shape.size() != 3) return {};
  std::vector<std::string> notices;
  if ((shape[2] == 1 || shape[2] == 3) && std::min(shape[0], shape[1]) >= kLeastSide) {
    notices.push_back(fmt::format(
        "{} is taken as images of {} channels and {} x {} pixels, [n, channels, height, width]: if its last "
        "dimension is that of channels, save {}.permute(0, 3, 1, 2).contiguous()",
        image.name, shape[0], shape[1], shape[2], image.name));
  }
  if (image.dtype == torch::kUInt8) return notices;
  const auto source = data.train.sources(torch::kCPU);
  Batch rows(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(torch::arange(std::min(kLookedAt, data.train.rows)), /*epoch=*/0, rows);
  const auto largest = rows[0].to(torch::kFloat32).abs().max().item<double>();
  if (!(largest >= kLarge) || !std::isfinite(largest)) return notices;  // others are named already
  notices.push_back(
      fmt::format("{} has floats up to {:.4g}, and networks learn from small ones: save pixels "
                  "as uint8, which is divided by 255, or divide them",
                  image.name, largest));
  return notices;
}

std::optional<std::string> not_finite_notice(const RowFaults& faults) {
  if (faults.not_finite.empty()) return std::nullopt;
  return fmt::format("{}: the loss of such a row may be NaN or infinite", faults.not_finite);
}

std::vector<std::string> machine_notices(const TrainPlan& plan) {
  std::vector<std::string> notices;
  const auto& devices = plan.trainer.devices;
  for (auto& notice :
       {many_threads_notice(plan.trainer.threads), few_threads_notice(plan.trainer.threads, devices),
        bf16_notice(plan), fp16_notice(plan), peer_notice(devices)}) {
    if (notice) notices.push_back(*notice);
  }
  return notices;
}

}  // namespace lockstep
