#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include <lockstep/app/bench/partition/figures.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

constexpr double kMeasurementSeconds = .05;  // target length of one measurement ...
constexpr double kMostSteps = 50;            // ... which takes at most so many steps
constexpr double kDifference = 1e-10;  // allowed in double, relative to the largest gradient of the tensor
enum SchemeName { kOne, kPipeline, kPipelineMicroBatches, kTensorParallel, kDataParallel };
constexpr std::array kSchemeNames = {"one device", "pipeline parallel", "pipeline parallel, micro-batches",
                                     "tensor parallel", "data parallel"};

using Schemes = std::vector<SchemePtr>;  // in the order of SchemeName

// The first `rows` synthetic images of this seed.
PartitionTask make_task(const LayeredNetwork& network, uint64_t seed, int64_t rows, torch::ScalarType dtype) {
  const auto images = make_synthetic(seed, rows, /*test_rows=*/1).train;
  return {.network = network,
          .params = initial_parameters(network, seed, dtype),
          .batch = {images.images.to(dtype) / 255, images.labels.to(torch::kInt64)}};
}

Schemes make_schemes(Mesh& mesh, const PartitionTask& task, const std::vector<size_t>& starts,
                     int micro_batches) {
  Schemes schemes;
  schemes.push_back(one_device(mesh, task));
  schemes.push_back(pipeline_parallel(mesh, task, starts, /*micro_batches=*/1));
  schemes.push_back(pipeline_parallel(mesh, task, starts, micro_batches));
  schemes.push_back(tensor_parallel(mesh, task));
  schemes.push_back(data_parallel(mesh, task));
  return schemes;
}

// Returns, for each layer, the seconds of its forward and backward pass on the whole batch on the mesh's
// first device (medians).
std::vector<double> layer_seconds(Mesh& mesh, const PartitionTask& task) {
  constexpr int kRepeats = 3;
  const auto& layers = task.network.layers;
  const auto offsets = parameter_offsets(layers);
  std::vector<double> seconds;
  mesh.run([&](int rank) {
    if (rank != 0) return;
    const auto params = get_params(task.params, mesh.device(0));
    auto input = rows_for(task.batch.input(), mesh.device(0));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) input.requires_grad_();
      std::vector<double> repeats;
      torch::Tensor output;
      for (int repeat = 0; repeat <= kRepeats; ++repeat) {
        mesh.synchronize(rank);
        Stopwatch watch;
        output = run_layers(std::span(layers).subspan(i, 1), input, std::span(params).subspan(offsets[i]));
        if (output.requires_grad()) output.backward(torch::ones_like(output));
        mesh.synchronize(rank);
        if (repeat > 0) repeats.push_back(watch.lap());  // the first is the warm-up
      }
      seconds.push_back(median(repeats));
      input = output.detach();
    }
  });
  return seconds;
}

double seconds_of_step(Mesh& mesh, PartitionScheme& scheme, int steps) {
  mesh.synchronize();
  Stopwatch watch;
  for (int step = 0; step < steps; ++step) take_step(mesh, scheme, kPartitionRate);
  mesh.synchronize();
  return watch.lap() / steps;
}

std::vector<Seconds> time_steps_of(Mesh& mesh, const Schemes& schemes, const BenchReport& report) {
  std::vector<std::function<double()>> cases;
  for (const auto& scheme : schemes) {
    const double once = seconds_of_step(mesh, *scheme, 1);
    const auto steps = static_cast<int>(std::clamp(kMeasurementSeconds / once, 1.0, kMostSteps));
    cases.emplace_back([&mesh, &scheme, steps] { return seconds_of_step(mesh, *scheme, steps); });
  }
  return report.in_turns(cases);
}

// How many devices can work at the same time.
double at_once(const Mesh& mesh) {
  std::set<torch::DeviceIndex> gpus;
  int on_cpu = 0;
  for (const auto device : mesh.devices()) {
    if (device.is_cpu())
      ++on_cpu;
    else
      gpus.insert(device.index());
  }
  const auto cores = static_cast<double>(allowed_cores().size());
  return static_cast<double>(gpus.size()) + std::min<double>(on_cpu, std::max(1.0, cores / mesh.threads()));
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
                                   const BenchPartitionOptions& options, const BenchReport& report) {
  const auto task = make_task(network, options.bench.seed, options.batch_size, torch::kFloat32);
  const auto seconds_of_layers = layer_seconds(mesh, task);
  PartitionFigures figures{.network = network.name,
                           .devices = spec_of(mesh.devices()),
                           .size = mesh.size(),
                           .at_once = at_once(mesh),
                           .starts = balanced_stages(seconds_of_layers, static_cast<size_t>(mesh.size()))};
  describe_stages(figures, network, seconds_of_layers);

  const auto schemes = make_schemes(mesh, task, figures.starts, options.micro_batches);
  std::vector<StepCost> costs;
  for (const auto& scheme : schemes) {
    take_step(mesh, *scheme, kPartitionRate);  // warm-up
    costs.push_back(cost_of_step(mesh, *scheme, kPartitionRate));
  }
  const auto seconds = time_steps_of(mesh, schemes, report);
  const auto figures_of = [&](SchemeName scheme) {
    return SchemeFigures{.scheme = kSchemeNames[scheme],
                         .micro_batches = scheme == kPipelineMicroBatches ? options.micro_batches : 1,
                         .seconds = seconds[scheme],
                         .over_one = paired_ratio(seconds[scheme], seconds[kOne]),
                         .cost = costs[scheme]};
  };
  figures.one = figures_of(kOne);
  figures.pipeline = figures_of(kPipeline);
  figures.pipeline_micro_batches = figures_of(kPipelineMicroBatches);
  figures.tensor_parallel = figures_of(kTensorParallel);
  figures.data_parallel = figures_of(kDataParallel);
  figures.micro_ratio = paired_ratio(seconds[kPipelineMicroBatches], seconds[kPipeline]);
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
          .detail = fmt::format("differ from one device's by {:.1e} of the tensor's largest, at most {:.0e}; "
                                "largest of all {:.3g}",
                                worst.relative, kDifference, worst.largest)};
}

// The number of rows is one that the devices cannot share evenly, unless there are more micro-batches than
// that.
std::vector<GradientCheck> check_gradients(Mesh& mesh, const LayeredNetwork& network,
                                           const std::vector<size_t>& starts,
                                           const BenchPartitionOptions& options) {
  const auto rows = std::max<int64_t>(options.micro_batches, 2 * mesh.size() + 1);
  const auto task = make_task(network, options.bench.seed, rows, torch::kFloat64);
  const auto schemes = make_schemes(mesh, task, starts, options.micro_batches);
  const auto expected = step_gradients(mesh, *schemes[kOne]).front();
  std::vector<GradientCheck> checks;
  for (const auto scheme : {kPipeline, kPipelineMicroBatches, kTensorParallel, kDataParallel}) {
    const auto name = fmt::format("gradients of {}, {} on {}, {} in double", network.name,
                                  kSchemeNames[scheme], spec_of(mesh.devices()), counted(rows, "row"));
    checks.push_back(check_against(name, step_gradients(mesh, *schemes[scheme]), expected));
  }
  return checks;
}

}  // namespace lockstep
