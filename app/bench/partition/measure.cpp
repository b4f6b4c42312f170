#include <lockstep/app/bench/partition/measure.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <set>

#include <lockstep/app/bench/partition/data_parallel.h>
#include <lockstep/app/bench/partition/pipeline.h>
#include <lockstep/app/bench/partition/scheme.h>
#include <lockstep/app/bench/partition/tensor_parallel.h>
#include <lockstep/app/report/bench_options.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

constexpr double kTurn = .05;          // seconds that a measurement lasts at least, as far as that takes
constexpr double kMostSteps = 50;      // no more than so many steps
constexpr double kDifference = 1e-10;  // of gradients in double, as a part of the largest of its tensor
enum Way { kOne, kNetworkWise, kMicroBatches, kLayerWise, kDataWise };
constexpr std::array kWayNames = {"one device", "network-wise", "network-wise, micro-batches", "layer-wise",
                                  "data-wise"};

using Ways = std::vector<std::unique_ptr<PartitionWay>>;  // in the order of Way

// The first `rows` of the images that the seed makes.
PartitionTask make_task(const LayeredNetwork& network, uint64_t seed, int64_t rows, torch::ScalarType dtype) {
  const auto images = make_synthetic(seed, rows, /*test_rows=*/1).train;
  return {.network = network,
          .params = initial_parameters(network, seed, dtype),
          .batch = {.X = images.images.to(dtype) / 255, .y = images.labels.to(torch::kInt64)}};
}

Ways make_ways(Mesh& mesh, const PartitionTask& task, const std::vector<size_t>& starts, int micro_batches) {
  Ways ways;
  ways.push_back(one_device(mesh, task));
  ways.push_back(network_wise(mesh, task, starts, /*micro_batches=*/1));
  ways.push_back(network_wise(mesh, task, starts, micro_batches));
  ways.push_back(layer_wise(mesh, task));
  ways.push_back(data_wise(mesh, task));
  return ways;
}

double seconds_of_step(Mesh& mesh, PartitionWay& way, int steps) {
  mesh.synchronize();
  Stopwatch watch;
  for (int step = 0; step < steps; ++step) take_step(mesh, way, kPartitionRate);
  mesh.synchronize();
  return watch.lap() / steps;
}

// [way][turn]: seconds of a step. Every turn begins with another way.
std::vector<std::vector<double>> take_turns(Mesh& mesh, const Ways& ways, int repeat,
                                            const std::function<bool()>& stop) {
  std::vector<int> steps;
  for (const auto& way : ways) {
    const double once = seconds_of_step(mesh, *way, 1);
    steps.push_back(static_cast<int>(std::clamp(kTurn / once, 1.0, kMostSteps)));
  }
  std::vector<std::vector<double>> seconds(ways.size());
  for (size_t turn = 0; turn < static_cast<size_t>(repeat); ++turn) {
    if (turn > 0 && stop()) break;
    for (size_t i = 0; i < ways.size(); ++i) {
      const auto way = (turn + i) % ways.size();
      seconds[way].push_back(seconds_of_step(mesh, *ways[way], steps[way]));
    }
  }
  return seconds;
}

// Devices' worth of work that can be done at the same time.
double at_once(const Mesh& mesh) {
  std::set<torch::DeviceIndex> gpus;
  int on_processor = 0;
  for (const auto device : mesh.devices()) {
    if (device.is_cpu())
      ++on_processor;
    else
      gpus.insert(device.index());
  }
  const auto cores = static_cast<double>(allowed_cores().size());
  return static_cast<double>(gpus.size()) +
         std::min<double>(on_processor, std::max(1.0, cores / mesh.threads()));
}

void describe_stages(PartitionFigures& figures, const LayeredNetwork& network,
                     const std::vector<double>& seconds) {
  const auto& starts = figures.starts;
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto at = [&](const auto& list, size_t place) {
      return list.begin() + static_cast<std::ptrdiff_t>(place);
    };
    figures.stages.push_back(
        describe(std::span(network.layers).subspan(starts[i], starts[i + 1] - starts[i])));
    figures.stage_shares.push_back(std::accumulate(at(seconds, starts[i]), at(seconds, starts[i + 1]), 0.0) /
                                   all);
  }
}

}  // namespace

PartitionFigures measure_partition(Mesh& mesh, const LayeredNetwork& network,
                                   const PartitionSettings& settings, const std::function<bool()>& stop) {
  const auto task = make_task(network, settings.seed, settings.batch_size, torch::kFloat32);
  const auto seconds_of_layers = layer_seconds(mesh, task);
  PartitionFigures figures{.network = network.name,
                           .devices = spec_of(mesh.devices()),
                           .size = mesh.size(),
                           .at_once = at_once(mesh),
                           .starts = balanced_stages(seconds_of_layers, static_cast<size_t>(mesh.size()))};
  describe_stages(figures, network, seconds_of_layers);

  const auto ways = make_ways(mesh, task, figures.starts, settings.micro_batches);
  std::vector<StepCost> costs;
  for (const auto& way : ways) {
    take_step(mesh, *way, kPartitionRate);  // makes what is made once
    costs.push_back(cost_of_step(mesh, *way, kPartitionRate));
  }
  const auto seconds = take_turns(mesh, ways, settings.repeat, stop);
  const auto figures_of = [&](Way way) {
    return WayFigures{.way = kWayNames[way],
                      .micro_batches = way == kMicroBatches ? settings.micro_batches : 1,
                      .seconds = spread_of(seconds[way]),
                      .over_one = paired_ratio(seconds[way], seconds[kOne]),
                      .cost = costs[way]};
  };
  figures.one = figures_of(kOne);
  figures.network_wise = figures_of(kNetworkWise);
  figures.micro_batches = figures_of(kMicroBatches);
  figures.layer_wise = figures_of(kLayerWise);
  figures.data_wise = figures_of(kDataWise);
  figures.micro_ratio = paired_ratio(seconds[kMicroBatches], seconds[kNetworkWise]);
  return figures;
}

GradientCheck check_against(const std::string& name, const std::vector<Params>& copies,
                            const Params& expected) {
  Difference worst;
  for (const auto& gradients : copies) {
    const auto apart = difference(gradients, expected);
    if (!std::isnan(worst.relative) && !(apart.relative < worst.relative)) worst = apart;
  }
  return {.name = name,
          .ok = worst.relative <= kDifference,
          .detail = fmt::format("apart from one device's by {:.1e} of the largest in their tensor, at most "
                                "{:.0e}; largest of all {:.3g}",
                                worst.relative, kDifference, worst.largest)};
}

// On a number of rows that the devices cannot share evenly, where the micro-batches leave the choice.
std::vector<GradientCheck> check_gradients(Mesh& mesh, const LayeredNetwork& network,
                                           const std::vector<size_t>& starts,
                                           const PartitionSettings& settings) {
  const auto rows = std::max<int64_t>(settings.micro_batches, 2 * mesh.size() + 1);
  const auto task = make_task(network, settings.seed, rows, torch::kFloat64);
  const auto ways = make_ways(mesh, task, starts, settings.micro_batches);
  const auto expected = step_gradients(mesh, *ways[kOne]).front();
  std::vector<GradientCheck> checks;
  for (const auto way : {kNetworkWise, kMicroBatches, kLayerWise, kDataWise}) {
    const auto name = fmt::format("gradients of {}, {} on {}, {} in double", network.name, kWayNames[way],
                                  spec_of(mesh.devices()), counted(rows, "row"));
    checks.push_back(check_against(name, step_gradients(mesh, *ways[way]), expected));
  }
  return checks;
}

}  // namespace lockstep
