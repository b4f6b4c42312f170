// run_two_layer_network(): measures, checks and traces the network.
#include <fmt/format.h>

#include <numeric>

#include <lockstep/app/bench/overlap/experiments.h>
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

// By repetition.
struct NetworkTimes {
  Seconds serially, by_dependencies;
  Seconds critical;  // the slowest chain of tasks, from the times of the serial run
};

NetworkTimes time_network(OverlapRun& run, TwoLayerNetwork& network) {
  network.reset();
  network.graph().run();  // warm-up
  NetworkTimes times;
  const auto serially = [&] {
    network.reset();
    const auto tasks = network.graph().run_serially();
    times.critical.push_back(network.graph().critical_path(tasks));
    return std::accumulate(tasks.begin(), tasks.end(), 0.0);
  };
  const auto by_dependencies = [&] {
    network.reset();
    return network.graph().run();
  };
  const auto seconds = run.report.in_turns({serially, by_dependencies});
  times.serially = seconds[0];
  times.by_dependencies = seconds[1];
  return times;
}

void check_network(OverlapRun& run, TwoLayerNetwork& network) {
  network.reset();
  network.graph().run();  // the last one that was measured may have been serial
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
  run.report.table("two-layer network", time_columns("two-layer network", 22, {}));
  run.report.row(times_row({{"what", "one task after another"}}, times.serially));
  run.report.row(times_row({{"what", "by dependencies"}}, times.by_dependencies));
  run.report.row(times_row({{"what", "its slowest chain"}}, times.critical));
}

}  // namespace

void run_two_layer_network(OverlapRun& run, const OverlapDevices& devices) {
  WorkQueue host({.cores = allowed_cores(), .rank = run.plan.count()});  // a thread on any core
  TwoLayerNetwork network(devices, host, run.plan.size, run.plan.seed);
  const auto times = time_network(run, network);
  print_network(run, times);
  check_network(run, network);

  Trace trace;
  for (auto* into : {&trace, run.trace}) {
    if (!into) continue;
    network.reset();
    network.graph().run(into);
  }
  run.keep_timeline("two-layer network", trace);

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
