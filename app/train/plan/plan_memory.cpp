#include <lockstep/app/train/plan/plan_memory.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/machine/need_memory.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/fault.h>

namespace lockstep {
namespace {

// The part of a GPU's memory that is left to tensors: libraries and torch's fixed block sizes take the rest.
constexpr double kUsable = .9;
// Proposed batch sizes are multiples of this.
constexpr int64_t kRound = 8;

// The number and the word after this text: {2, "GiB"} for "2.00 GiB". 0 if the text is not there.
std::pair<double, std::string> number_after(const std::string& words, const std::string& text) {
  const auto at = words.find(text);
  if (at == std::string::npos) return {0, ""};
  std::istringstream rest(words.substr(at + text.size()));
  std::pair<double, std::string> found;
  rest >> found.first >> found.second;
  return found;
}

double bytes_after(const std::string& words, const std::string& text) {
  const auto [number, unit] = number_after(words, text);
  const auto is = [&](std::string_view name) { return unit.starts_with(name); };  // a full stop may follow
  return number * (is("GiB") ? 1 << 30 : is("MiB") ? 1 << 20 : is("KiB") ? 1 << 10 : 1);
}

// Returns true if the engine takes these options with --shard.
bool can_share(TrainerOptions trainer, Shard shard) {
  trainer.shard = shard;
  try {
    trainer.check_combination();
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

TrainPlan with_shard(TrainPlan plan, Shard shard) {
  plan.trainer.shard = shard;
  return plan;
}

// "weights, gradients and moments"
std::string held_words(const HeldBytes& held) {
  std::vector<std::string> words = {"weights", "gradients"};
  if (held.moments > 0) words.emplace_back("moments");
  if (held.average > 0) words.emplace_back("average");
  const auto last = std::move(words.back());
  words.pop_back();
  return fmt::format("{} and {}", fmt::join(words, ", "), last);
}

// For the end of a hint: the first --shard beyond the plan's own that leaves each replica less and with which
// the run fits; if it fits with none of them, the one that leaves least, and that it is not enough.
std::string or_shards(const TrainPlan& plan, const std::function<bool(Shard shard)>& fits) {
  const auto before = held_bytes(plan);
  const auto keeps = [&](int64_t left) {
    return fmt::format("each replica keeps {} of {} instead of {}", memory_text(left), held_words(before),
                       memory_text(before.all()));
  };
  std::string_view least;
  int64_t held = before.all();
  for (const auto& [name, shard] : kShardNames) {
    if (shard <= plan.trainer.shard || !can_share(plan.trainer, shard)) continue;
    const auto left = held_bytes(plan, plan.world_size(), shard).all();
    if (left >= held) continue;
    if (fits(shard)) return fmt::format("; with --shard {} {}", name, keeps(left));
    least = name;
    held = left;
  }
  if (least.empty()) return {};
  return fmt::format("; --shard {} alone is not enough: {}", least, keeps(held));
}

// The plan of most replicas.
const TrainPlan& largest(std::span<const TrainPlan> plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const auto& a, const auto& b) { return a.world_size() < b.world_size(); });
}

// The bytes of a GPU that each of the plan's replicas there may take.
double room_of_each(const TrainPlan& plan, torch::Device device, double capacity) {
  const auto& devices = plan.trainer.devices;
  const auto here = std::max<int64_t>(1, std::count(devices.begin(), devices.end(), device));
  return kUsable * capacity / static_cast<double>(here);
}

// The largest batch that should fit by the plan's estimate, but at most half of the one that failed; 0 if no
// row fits.
int64_t fitting_batch(const TrainPlan& plan, torch::DeviceType device, double room) {
  const auto world = static_cast<int64_t>(plan.world_size());
  const auto fixed = static_cast<double>(replica_bytes(plan, 0, device));
  const auto row = static_cast<double>(replica_bytes(plan, 1, device)) - fixed;
  const auto rows = static_cast<int64_t>((room - fixed) / row);
  const auto batch = std::min(rows * world, plan.batch_size / 2);
  return std::max<int64_t>(0, batch >= kRound ? batch / kRound * kRound : batch);
}

}  // namespace

void need_memory_for(std::span<const TrainPlan> plans, const std::function<bool()>& in_files) {
  bool counts_checkpoints = true;
  // With this --shard where a plan can have it.
  const auto needed = [&](std::optional<Shard> shard) {
    int64_t bytes = 0;
    for (const auto& plan : plans) {
      const bool other = shard && *shard > plan.trainer.shard && can_share(plan.trainer, *shard);
      bytes += host_bytes(other ? with_shard(plan, *shard) : plan);
      if (!counts_checkpoints) bytes -= checkpoint_bytes(plan);
    }
    return bytes;
  };
  const auto available = available_bytes();
  if (available == 0 || needed({}) <= available) return;
  counts_checkpoints = !in_files || !in_files();
  const auto bytes = needed({});
  if (bytes <= available) return;
  const auto& first = plans.front();
  need_host_memory(
      bytes,
      fmt::format("training {} per step on {}", counted(first.batch_size, first.data.set.row_noun),
                  plans.size() > 1 ? "all lists at once" : to_string(first.trainer.devices)),
      "--batch-size, or fewer replicas (--devices)" +
          or_shards(largest(plans), [&](Shard shard) { return needed(shard) <= available; }));
}

MemoryError out_of_memory(const std::string& words, const TrainPlan& plan) {
  const auto [index, has] = number_after(words, "GPU ");
  if (has != "has") {  // nobody knows whether it would fit
    return MemoryError(words, "use a smaller --batch-size, or fewer replicas (--devices)" +
                                  or_shards(plan, [](Shard) { return true; }));
  }
  const torch::Device device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  const auto room = room_of_each(plan, device, bytes_after(words, "capacity of"));
  const auto fault = explain({.code = 2,  // cudaErrorMemoryAllocation
                              .words = words,
                              .device = device.str(),
                              .asked_bytes = static_cast<uint64_t>(bytes_after(words, "allocate")),
                              .free_bytes = static_cast<uint64_t>(bytes_after(words, "of which")),
                              .fitting_batch = fitting_batch(plan, device.type(), room)});
  const auto rows = std::ranges::max(plan.step_sizes()) / plan.trainer.accumulate;
  return MemoryError(
      fault.message_text(),
      fault.hint_text() + or_shards(plan, [&](Shard shard) {
        return static_cast<double>(replica_bytes(with_shard(plan, shard), rows, device.type())) <= room;
      }));
}

}  // namespace lockstep
