#include <lockstep/app/bench/overlap/plan.h>

#include <fmt/format.h>

#include <map>
#include <string>

#include <lockstep/app/bench/overlap/queues/dependent_matmuls.h>
#include <lockstep/app/bench/overlap/queues/device.h>
#include <lockstep/app/bench/overlap/queues/independent_operators.h>
#include <lockstep/app/bench/overlap/queues/two_layer_network.h>
#include <lockstep/app/machine/need_memory.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kOperators = 8;       // exercises 1 and 2: the chapter's eight
constexpr int64_t kLargestSmall = 512;  // exercise 2
constexpr int64_t kPasses = 4;          // exercise 5

// Exercises 1 and 2 use the first device alone.
bool on_one_device(int exercise) { return exercise == 1 || exercise == 2; }

int64_t default_size(int exercise, const std::vector<torch::Device>& devices) {
  if (exercise == 2) return kLargestSmall;
  return any_cpu(devices) ? kCpuSize : kChapterSize;
}

int64_t default_iterations(int exercise) {
  if (on_one_device(exercise)) return kOperators;
  return exercise == 5 ? kPasses : kChapterIterations;
}

// Bytes on the device at this place in the list.
int64_t device_bytes(const OverlapPlan& plan, size_t place) {
  const int exercise = plan.exercise.value_or(0);
  if (on_one_device(exercise))
    return place == 0 ? independent_operators_bytes(plan.size, plan.iterations) : 0;
  if (exercise == 5) return dependent_matmuls_bytes(plan.size);
  return overlap_device_bytes(plan.size) + (plan.network ? two_layer_device_bytes(plan.size) : 0);
}

int64_t host_bytes(const OverlapPlan& plan) {
  constexpr int64_t kReference = 4;  // matrices during the comparison of a result
  int64_t bytes = kReference * plan.size * plan.size * static_cast<int64_t>(sizeof(float));
  const int exercise = plan.exercise.value_or(0);
  const bool to_the_host = !on_one_device(exercise) && exercise != 5;
  for (size_t place = 0; place < plan.devices.size(); ++place) {
    const bool cpu = plan.devices[place].is_cpu();
    if (cpu) bytes += device_bytes(plan, place);
    if (to_the_host) bytes += overlap_copies_bytes(plan.size, plan.devices[place]);
  }
  if (!plan.network) return bytes;
  return bytes + two_layer_host_bytes(plan.size, static_cast<int64_t>(plan.devices.size()));
}

}  // namespace

OverlapPlan plan_of(const BenchOverlapOptions& options) {
  const auto lists = device_lists(options.bench, {default_pair()});
  if (lists.size() > 1) {
    throw UsageError(fmt::format("bench overlap takes one list of devices, not {}", lists.size()),
                     "run it once for each list");
  }
  const auto& devices = lists.front();
  const int exercise = options.exercise.value_or(0);
  if (!on_one_device(exercise)) need_devices(devices, 2, "bench overlap");
  return {.devices = devices,
          .threads = threads_for(options.bench, devices.size()),
          .size = options.size.value_or(default_size(exercise, devices)),
          .iterations = options.iterations.value_or(default_iterations(exercise)),
          .repeat = options.bench.repeat,
          .seed = options.bench.seed,
          .exercise = options.exercise,
          .network = options.exercise ? options.exercise == 3 : options.trace.has_value()};
}

void need_memory(const OverlapPlan& plan) {
  const auto what = fmt::format("matrices of {0} x {0} on {1}", plan.size, to_string(plan.devices));
  need_host_memory(host_bytes(plan), what, "--size");
  std::vector<int64_t> bytes;
  for (size_t place = 0; place < plan.devices.size(); ++place) bytes.push_back(device_bytes(plan, place));
  need_gpu_memory(plan.devices, bytes, what, "--size");
}

}  // namespace lockstep
