#include <lockstep/app/bench/overlap/run.h>

#include <fmt/format.h>

#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/app/bench/overlap/queues/dependent_matmuls.h>
#include <lockstep/app/bench/overlap/queues/two_layer_network.h>
#include <lockstep/app/machine/need_memory.h>
#include <lockstep/parallel/devices.h>
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
  if (on_one_device(exercise)) return place == 0 ? matrix_bytes(plan.size, 2 * plan.iterations) : 0;
  if (exercise == 5) return dependent_matmuls_bytes(plan.size);
  return overlap_device_bytes(plan.size) + (plan.network ? two_layer_device_bytes(plan.size) : 0);
}

void need_memory(const OverlapPlan& plan) {
  constexpr int64_t kReference = 4;  // matrices during the comparison of a result
  const auto& devices = plan.list.devices;
  const int exercise = plan.exercise.value_or(0);
  const bool to_the_host = !on_one_device(exercise) && exercise != 5;
  int64_t on_host = matrix_bytes(plan.size, kReference);
  if (plan.network) on_host += two_layer_host_bytes(plan.size, plan.count());
  std::vector<int64_t> bytes;
  for (size_t place = 0; place < devices.size(); ++place) {
    bytes.push_back(device_bytes(plan, place));
    if (devices[place].is_cpu()) on_host += bytes.back();
    if (to_the_host) on_host += overlap_copies_bytes(plan.size, devices[place]);
  }
  const auto what = fmt::format("matrices of {0} x {0} on {1}", plan.size, to_string(devices));
  need_host_memory(on_host, what, "--size");
  need_gpu_memory(devices, bytes, what, "--size");
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
  OverlapPlan plan{.list = {.devices = devices, .threads = threads_for(options.bench, devices.size())},
                   .size = options.size.value_or(default_size(exercise, devices)),
                   .iterations = options.iterations.value_or(default_iterations(exercise)),
                   .seed = options.bench.seed,
                   .exercise = options.exercise,
                   .network = options.exercise ? options.exercise == 3 : options.trace.has_value()};
  need_memory(plan);
  return plan;
}

void OverlapRun::keep_timeline(const std::string& experiment, const Trace& traced) {
  for (auto& row : lockstep::timeline(experiment, traced.events(), process_names(plan))) {
    timeline.push_back(std::move(row));
  }
  report.keep("timeline", timeline);
}

std::vector<std::string> process_names(const OverlapPlan& plan) {
  auto names = device_names(plan.list.devices);
  names.push_back("host");
  return names;
}

std::vector<Column> time_columns(const std::string& title, int width, const std::vector<Column>& figures) {
  std::vector<Column> columns = {{.key = "what", .title = title, .width = width, .digits = kText},
                                 {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                                 {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1}};
  columns.insert(columns.end(), figures.begin(), figures.end());
  columns.push_back({.key = "repeats", .title = "repeats", .width = 7});
  return columns;
}

}  // namespace lockstep
