// run_two_layer_network(): measures, checks and traces the network.
#include <fmt/format.h>

#include <numeric>

#include <lockstep/app/bench/overlap/exercises.h>
#include <lockstep/app/bench/overlap/queues/two_layer_network.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kAgrees = 1e-4;  // difference from autograd, relative to the largest element

// Returns true if the host summed the second layer's gradients while a device computed the first layer's.
bool sum_beside_backward(const std::vector<Trace::Event>& events) {
  for (const auto& sum : events) {
    if (sum.name != "sum and update 2") continue;
    for (const auto& event : events) {
      if (event.name == "gradient 1" && event.begin < sum.end && sum.begin < event.end) return true;
    }
  }
  return false;
}

struct NetworkTimes {
  std::vector<double> serially;  // by repetition, as below
  std::vector<double> by_dependencies;
  std::vector<double> critical;  // the slowest chain of tasks, from the times of the serial run
};

NetworkTimes time_network(OverlapRun& run, TwoLayerNetwork& network) {
  network.reset();
  network.graph().run();  // warm-up
  NetworkTimes times;
  for (int repetition = 0; run.report.takes_repetition(repetition, run.plan.repeat); ++repetition) {
    network.reset();
    const auto tasks = network.graph().run_serially();
    times.serially.push_back(std::accumulate(tasks.begin(), tasks.end(), 0.0));
    times.critical.push_back(network.graph().critical_path(tasks));
    network.reset();
    times.by_dependencies.push_back(network.graph().run());
  }
  return times;
}

void check_network(OverlapRun& run, TwoLayerNetwork& network) {
  const auto error = network.error();
  run.report.check(
      "gradients", error.gradients <= kAgrees,
      fmt::format("differ from autograd's on one device by {:.1e} of the largest", error.gradients));
  run.report.check(
      "weights", error.weights <= kAgrees,
      fmt::format("differ from autograd's on one device by {:.1e} of the largest", error.weights));
  const auto differing = network.differing_weights();
  run.report.check("replicas", differing == 0, counted(differing, "weight") + " unlike the host's");
}

void print_network(OverlapRun& run, const NetworkTimes& times) {
  run.report.table("two-layer network",
                   {{.key = "what", .title = "two-layer network", .width = 22, .digits = kText},
                    {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                    {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
                    {.key = "repeats", .title = "repeats", .width = 7}});
  const auto add = [&](const char* what, const std::vector<double>& seconds) {
    Json row = {{"what", what}};
    add_times(row, seconds);
    run.report.row(std::move(row));
  };
  add("one task after another", times.serially);
  add("by dependencies", times.by_dependencies);
  add("its slowest chain", times.critical);
}

// A thread that may run on any core.
std::unique_ptr<WorkQueue> host_queue(const OverlapPlan& plan) {
  return make_work_queue({.cores = allowed_cores(), .rank = static_cast<int>(plan.devices.size())});
}

void trace_network(WorkQueue& host, OverlapDevices& devices, TwoLayerNetwork& network, Trace& trace) {
  std::vector<WorkQueue*> queues = {&host};
  for (auto& device : devices) {
    for (auto* queue : device->queues()) queues.push_back(queue);
  }
  for (auto* queue : queues) queue->trace_to(&trace);
  network.reset();
  network.graph().run();
  for (auto* queue : queues) queue->trace_to(nullptr);
}

}  // namespace

void run_two_layer_network(OverlapRun& run, OverlapDevices& devices) {
  const auto host = host_queue(run.plan);
  TwoLayerNetwork network(devices, *host, run.plan.size, run.plan.seed);
  const auto times = time_network(run, network);
  print_network(run, times);
  check_network(run, network);

  Trace trace;
  trace_network(*host, devices, network, trace);
  run.keep_timeline("two-layer network", trace);
  if (run.trace) trace_network(*host, devices, network, *run.trace);

  const auto ratio = paired_ratio(times.serially, times.by_dependencies);
  const bool beside = sum_beside_backward(trace.events());
  const char* sums =
      beside ? "the host summed the second layer's gradients while the first layer's were computed"
             : "the host did not sum the second layer's gradients while the first layer's were computed";
  if (!ratio) {
    run.report.note(too_few_repeats(times.serially.size()));
    return run.report.finding(fmt::format("two-layer network: {}", sums), {{"sum_beside_backward", beside}});
  }
  run.report.finding(
      fmt::format("two-layer network: by dependencies it is {:.2f} x as fast as one task after another; {}",
                  *ratio, sums),
      {{"speed", *ratio}, {"sum_beside_backward", beside}});
}

}  // namespace lockstep
