// lockstep bench partition: compares the chapter's three schemes that partition a network over devices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>

#include <lockstep/app/bench/partition/figures.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/machine/need_memory.h>
#include <lockstep/app/report/benchmark.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMostRows = 1 << 30;  // the memory need of more rows would overflow
constexpr int64_t kCopies = 3;          // per activation: itself, its gradient, a kernel's workspace

std::vector<Column> partition_columns() {
  return {{.key = "model", .title = "model", .width = 5, .digits = kText},
          {.key = "scheme", .title = "scheme", .width = 32, .digits = kText},
          {.key = "devices", .title = "devices", .width = 10, .digits = kText},
          {.key = "micro_batches", .title = "m", .width = 3},
          {.key = "ms", .title = "step", .unit = "ms", .width = 8, .digits = 2},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "over_one", .title = "/ one device", .width = 6, .digits = 2},
          {.key = "bytes", .title = "moved", .unit = "B", .width = 10},
          {.key = "synchronisations", .title = "synchronisations", .width = 8},
          {.key = "parameter_bytes", .title = "parameters", .unit = "B", .width = 10},
          {.key = "activation_bytes", .title = "activations", .unit = "B", .width = 11}};
}

void print_rows(BenchReport& report, const PartitionFigures& figures, int64_t batch) {
  for (const auto* scheme : {&figures.one, &figures.pipeline, &figures.pipeline_micro_batches,
                             &figures.tensor_parallel, &figures.data_parallel}) {
    Json row{{"model", figures.network},
             {"scheme", scheme->scheme},
             {"devices", figures.devices},
             {"batch_size", batch},
             {"micro_batches", scheme->micro_batches}};
    row = times_row(std::move(row), scheme->seconds, kMilliseconds);
    row["over_one"] = or_null(scheme->over_one);
    row["bytes"] = scheme->cost.traffic.bytes;
    row["synchronisations"] = scheme->cost.traffic.synchronisations;
    row["parameter_bytes"] = scheme->cost.parameter_bytes;
    row["activation_bytes"] = scheme->cost.activation_bytes;
    report.row(std::move(row));
  }
}

void run_network(BenchReport& report, Mesh& mesh, const LayeredNetwork& network,
                 const BenchPartitionOptions& options) {
  report.stop_if_interrupted(fmt::format("before {} on {}", network.name, spec_of(mesh.devices())));
  const auto figures = measure_partition(mesh, network, options, report);
  print_rows(report, figures, options.batch_size);
  report.stop_if_interrupted(
      fmt::format("after the repetitions of {} on {}", network.name, spec_of(mesh.devices())));
  for (auto& finding : partition_findings(figures)) {
    finding.values.update({{"model", figures.network}, {"devices", figures.devices}});
    report.finding(finding.sentence, finding.values);
  }
  for (const auto& check : check_gradients(mesh, network, figures.starts, options)) {
    report.check(check.name, check.ok, check.detail);
  }
}

// Bytes on the host for all schemes of one network: parameters with gradients, and the activations of the
// scheme that takes a step. Tensor parallelism keeps whole activations on every device.
int64_t bytes_needed(const LayeredNetwork& network, const std::vector<torch::Device>& devices,
                     int64_t batch) {
  const auto on_cpu =
      std::count_if(devices.begin(), devices.end(), [](auto device) { return device.is_cpu(); });
  int64_t parameters = 0;
  for (const auto& param : initial_parameters(network, 0, torch::kFloat32)) parameters += param.numel();
  const auto per_row = elements_per_row(network);
  const auto size = static_cast<int64_t>(sizeof(float));
  return size * (parameters * (8 + 3 * on_cpu) + per_row * kCopies * batch * (1 + on_cpu));
}

// Throws if the network cannot be partitioned over these devices or does not fit into memory.
void check_fit(const std::vector<torch::Device>& devices, const LayeredNetwork& network,
               const BenchPartitionOptions& options) {
  need_devices(devices, 2, "a partition");
  const auto layers = network.layers.size();
  if (devices.size() > layers) {
    throw UsageError(fmt::format("{} has {}, pipeline parallel on {} needs at least one for each of {}",
                                 network.name, counted(static_cast<int64_t>(layers), "layer"),
                                 spec_of(devices), counted(static_cast<int64_t>(devices.size()), "device")),
                     fmt::format("use at most {} devices", layers));
  }
  if (options.batch_size < options.micro_batches) {
    throw UsageError(fmt::format("--batch-size {} has fewer rows than --micro-batches {}", options.batch_size,
                                 options.micro_batches),
                     "each micro-batch needs at least one row");
  }
  need_host_memory(
      bytes_needed(network, devices, options.batch_size),
      fmt::format("{} of {} on {}", counted(options.batch_size, "row"), network.name, spec_of(devices)),
      "--batch-size");
}

constexpr const char* kExplanation[] = {
    "one device         the whole network on the first device, with as many threads as each device has",
    "pipeline parallel  consecutive layers on each device (the chapter: network-wise); m: micro-batches",
    "tensor parallel    channels and units of every layer shared out, outputs gathered (layer-wise)",
    "data parallel      rows shared out, gradients summed during backward, as lockstep does (data-wise)",
    "moved              bytes read from other devices' memory per step, over all devices, without the "
    "batch; a sum of gradients counts as 2 (n-1) x its size",
    "synchronisations   transfers between two devices, gathers and sums over all of them, per step",
    "parameters         values on the fullest device; gradients take as much again",
    "activations        what forward allocated and backward still finds, on the fullest device"};

void add_partition_flags(CLI::App& partition, BenchPartitionOptions& options) {
  add_bench_flags(partition, options.bench,
                  "Devices; repeat the flag to compare lists (default: two GPUs, cuda:0x2 or cpux2)");
  partition.add_option("--model", options.models, "Network; repeat the flag for several (default: all)")
      ->check(one_of(layered_network_names()))
      ->allow_extra_args(false)
      ->default_str("");
  partition.add_option("--batch-size", options.batch_size, "Rows per step, over all devices")
      ->check(positive_int(kMostRows));
  partition
      .add_option("--micro-batches", options.micro_batches, "Micro-batches per batch of pipeline parallel")
      ->check(positive_int(kMostRows));
}

void run_partition(const BenchPartitionOptions& options) {
  const auto lists = device_lists(options.bench, {default_pair()});
  std::vector<LayeredNetwork> networks;
  for (const auto& name : options.models.empty() ? layered_network_names() : options.models) {
    networks.push_back(layered_network(name));
  }
  for (const auto& devices : lists) {
    for (const auto& network : networks) check_fit(devices, network, options);
  }
  BenchReport report(
      "partition", options.bench,
      {{"batch_size", options.batch_size}, {"micro_batches", options.micro_batches}, {"lr", kPartitionRate}});
  for (const auto* line : kExplanation) report.note(line);
  for (const auto& devices : lists) {
    report.note(fmt::format("threads            {}: {} per device", spec_of(devices),
                            threads_for(options.bench, devices.size())));
  }
  report.run([&] {
    report.table("partition", partition_columns());
    for (const auto& devices : lists) {
      Mesh mesh(devices, threads_for(options.bench, devices.size()));
      for (const auto& network : networks) run_network(report, mesh, network, options);
    }
  });
}

}  // namespace

void setup_bench_partition(CLI::App& bench) {
  add_benchmark(bench, "partition", "Compare pipeline, tensor and data parallelism: time, traffic, memory",
                add_partition_flags, run_partition);
}

}  // namespace lockstep
