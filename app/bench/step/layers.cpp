#include <lockstep/app/bench/step/layers.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include <lockstep/models/costs.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/cpu/parallel_parts.h>
#include <lockstep/support/statistics.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

constexpr double kLayerSeconds = .3;  // least time per layer and replica
constexpr size_t kLeastPasses = 3, kMostPasses = 500;
constexpr int64_t kPeakRounds = 1 << 20;
constexpr int kPeakRepeats = 5;

// The rows of one forward pass of a replica.
int64_t rows_of_replica(const TrainPlan& plan, size_t replica) {
  const int64_t batch = std::min(plan.batch_size, plan.data.set.train.rows);
  const auto rows = shard_sizes(batch, plan.world_size(), plan.trainer.split)[replica];
  return std::max<int64_t>(rows / plan.trainer.accumulate, 1);
}

// Returns true if the layers compute in bfloat16, lockstep's or torch's.
bool in_bf16(const TrainPlan& plan) {
  return plan.trainer.replica.precision == Precision::kBf16 && !stays_in_fp32(plan.spec(), torch::kCPU);
}

struct LayerTime {
  std::string name;
  int64_t count = 0;                 // number of layers with this shape
  double forward = 0, backward = 0;  // seconds of one layer with a replica's rows
  double operations_per_second = 0;  // of all replicas together; 0 for layers without matrix products
};

struct Passes {
  std::vector<double> forward, backward;  // seconds
};

// Times one layer in one replica.
Passes time_passes(const ModelLayer& layer, int64_t rows, const TrainPlan& plan) {
  auto sizes = layer.input;
  sizes.insert(sizes.begin(), rows);
  const bool mostly_unrounded = 2 * layer.unrounded > layer.count;
  const bool bf16_input = in_bf16(plan) && !layer.first && !mostly_unrounded;
  const auto type = bf16_input ? torch::kBFloat16 : dtype_of(plan.trainer.replica.precision);
  auto X = torch::rand(sizes, type);
  if (X.dim() == 4) X = X.contiguous(torch::MemoryFormat::ChannelsLast);
  X.requires_grad_(!layer.first);
  Passes passes;
  torch::Tensor dy;
  double spent = 0;
  for (size_t i = 0; i < kLeastPasses || (spent < kLayerSeconds && i < kMostPasses); ++i) {
    Stopwatch watch;
    const auto y = [&] {
      const AutocastGuard autocast(plan.trainer.replica.precision, torch::kCPU);
      return layer.forward(X);
    }();
    const double forward = watch.lap();
    if (!dy.defined()) dy = torch::rand_like(y);
    watch.lap();
    y.backward(dy);
    const double backward = watch.lap();
    X.mutable_grad() = torch::Tensor();
    if (i == 0) continue;  // warm-up
    passes.forward.push_back(forward);
    passes.backward.push_back(backward);
    spent += forward + backward;
  }
  return passes;
}

// Times one layer in all replicas at once and returns the medians of the slowest replica.
LayerTime time_layer(ReplicaWorkers& workers, const std::vector<ModelLayer>& replicas,
                     const TrainPlan& plan) {
  std::vector<Passes> passes(replicas.size());
  workers.run([&](int rank) {
    const auto replica = static_cast<size_t>(rank);
    passes[replica] = time_passes(replicas[replica], rows_of_replica(plan, replica), plan);
  });
  const auto& layer = replicas[0];
  LayerTime time{.name = layer.name, .count = layer.count};
  int64_t rows = 0;
  for (size_t replica = 0; replica < replicas.size(); ++replica) {
    time.forward = std::max(time.forward, median(passes[replica].forward));
    time.backward = std::max(time.backward, median(passes[replica].backward));
    rows += rows_of_replica(plan, replica);
  }
  time.operations_per_second = static_cast<double>(rows * (layer.forward_flops + layer.backward_flops)) /
                               (time.forward + time.backward);
  return time;
}

// Times every layer in all replicas at once (medians), with the rows, threads and precision of a step. Ends
// early after Ctrl-C. In bfloat16 torch's layers convert their weights in each pass; in a step bf16 weights
// are kept.
std::vector<LayerTime> time_layers(const TrainPlan& plan, const BenchReport& report) {
  const auto& devices = plan.trainer.devices;
  ReplicaWorkers workers(devices, plan.trainer.threads);
  std::vector<std::vector<ModelLayer>> networks(devices.size());
  workers.run([&](int rank) { networks[static_cast<size_t>(rank)] = layers_of(plan.spec()); });
  std::vector<LayerTime> times;
  for (size_t i = 0; i < networks[0].size() && !report.interrupted(); ++i) {
    std::vector<ModelLayer> replicas;
    for (const auto& network : networks) replicas.push_back(network[i]);
    times.push_back(time_layer(workers, replicas, plan));
  }
  return times;
}

// Floating-point operations per second of all replicas' threads together, computing in registers alone
// (RegisterLoop) in the precision of the plan's layers: the best of several repetitions. Empty for fp64 and
// fp16, and for bf16 if lockstep's kernels have no bf16 matrix products on this CPU.
std::optional<double> register_peak(const TrainPlan& plan) {
  const auto* bf16 = fast_bf16_kernels();
  const auto type = type_of_layers(plan.trainer.replica.precision);
  const bool in_fp16 = type == torch::kFloat16 && !stays_in_fp32(plan.spec(), torch::kCPU);
  if (type == torch::kFloat64 || in_fp16 || (in_bf16(plan) && !bf16)) {
    return std::nullopt;
  }
  const auto& loop = in_bf16(plan) ? *bf16->register_loop : *cpu_kernels<float>().register_loop;
  ReplicaWorkers workers(plan.trainer.devices, plan.trainer.threads);
  const auto threads = replica_threads(plan.trainer);
  std::vector<double> seconds;
  for (int i = 0; i < kPeakRepeats; ++i) {
    Stopwatch watch;
    workers.run([&](int) { parallel_parts(threads, [&](int64_t) { loop.run(kPeakRounds); }); });
    seconds.push_back(watch.lap());
  }
  const auto all = static_cast<double>(plan.world_size() * threads);
  return all * static_cast<double>(kPeakRounds * loop.operations) /
         *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace

std::vector<Column> layer_columns() {
  return {{.key = "devices", .title = "devices", .width = 12, .digits = kText},
          {.key = "layer", .title = "layer", .width = 34, .digits = kText},
          {.key = "count", .title = "count", .width = 5},
          {.key = "forward_ms", .title = "forward", .unit = "ms", .width = 8, .digits = 3},
          {.key = "backward_ms", .title = "backward", .unit = "ms", .width = 8, .digits = 3},
          {.key = "gflops", .title = "arithmetic", .unit = "GFLOP/s", .digits = 1},
          {.key = "of_peak", .title = "of peak", .unit = "%", .width = 7, .digits = 1}};
}

void report_layers(BenchReport& report, const TrainPlan& plan, double step_seconds) {
  const auto devices = spec_of(plan.trainer.devices);
  const auto peak = register_peak(plan);
  double seconds = 0;
  for (const auto& layer : time_layers(plan, report)) {
    std::optional<double> gflops, of_peak;
    if (layer.operations_per_second > 0) gflops = layer.operations_per_second / 1e9;
    if (gflops && peak) of_peak = 100 * layer.operations_per_second / *peak;
    seconds += static_cast<double>(layer.count) * (layer.forward + layer.backward);
    report.row({{"devices", devices},
                {"layer", layer.name},
                {"count", layer.count},
                {"forward_ms", 1e3 * layer.forward},
                {"backward_ms", 1e3 * layer.backward},
                {"gflops", or_null(gflops)},
                {"of_peak", or_null(of_peak)}});
  }
  report.stop_if_interrupted("after the layers that are shown");
  report.finding(
      fmt::format(
          "{}: all layers one by one take {:.2f} ms, the step takes {:.2f} ms{}", devices, 1e3 * seconds,
          1e3 * step_seconds,
          peak ? fmt::format("; in registers alone the cores reach {:.1f} GFLOP/s", *peak / 1e9) : ""),
      {{"devices", devices}, {"layers_ms", 1e3 * seconds}, {"register_peak", or_null(peak)}});
}

}  // namespace lockstep
