#include <lockstep/app/bench/partition/partition.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <numeric>

#include <lockstep/app/bench/partition/measure.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/memory/need_memory.h>
#include <lockstep/app/report/report.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMostRows = 1 << 30;  // of which the memory can still be worked out
constexpr int64_t kCopies = 3;  // of each activation in a step: itself, its gradient, what a kernel works in

std::vector<Column> partition_columns() {
  return {{.key = "model", .title = "model", .width = 5, .digits = kText},
          {.key = "way", .title = "way", .width = 27, .digits = kText},
          {.key = "devices", .title = "devices", .width = 10, .digits = kText},
          {.key = "micro_batches", .title = "m", .width = 3},
          {.key = "ms", .title = "step", .unit = "ms", .width = 8, .digits = 2},
          {.key = "spread", .title = "spread", .unit = "%", .width = 6, .digits = 1},
          {.key = "over_one", .title = "/ one device", .width = 6, .digits = 2},
          {.key = "bytes", .title = "moved", .unit = "B", .width = 10},
          {.key = "meetings", .title = "meetings", .width = 8},
          {.key = "parameter_bytes", .title = "parameters", .unit = "B", .width = 10},
          {.key = "activation_bytes", .title = "activations", .unit = "B", .width = 11}};
}

void print_rows(BenchReport& report, const PartitionFigures& figures, int64_t batch) {
  for (const auto* way : {&figures.one, &figures.network_wise, &figures.micro_batches, &figures.layer_wise,
                          &figures.data_wise}) {
    const auto& seconds = way->seconds;
    report.row({{"model", figures.network},
                {"way", way->way},
                {"devices", figures.devices},
                {"batch_size", batch},
                {"micro_batches", way->micro_batches},
                {"ms", seconds.median * 1e3},
                {"spread", seconds.relative() * 1e2},
                {"over_one", or_null(way->over_one)},
                {"bytes", way->cost.traffic.bytes},
                {"meetings", way->cost.traffic.meetings},
                {"parameter_bytes", way->cost.parameter_bytes},
                {"activation_bytes", way->cost.activation_bytes},
                {"turns", seconds.repeats}});
  }
}

void run_network(BenchReport& report, Mesh& mesh, const LayeredNetwork& network,
                 const BenchPartitionOptions& options) {
  report.stop_if_interrupted(fmt::format("before {} on {}", network.name, spec_of(mesh.devices())));
  const PartitionSettings settings{.batch_size = options.batch_size,
                                   .micro_batches = options.micro_batches,
                                   .repeat = options.bench.repeat,
                                   .seed = options.bench.seed};
  const auto figures = measure_partition(mesh, network, settings, [&] { return report.interrupted(); });
  print_rows(report, figures, options.batch_size);
  report.stop_if_interrupted(
      fmt::format("after the turns of {} on {}", network.name, spec_of(mesh.devices())));
  for (auto& finding : partition_findings(figures)) {
    finding.values.update({{"model", figures.network}, {"devices", figures.devices}});
    report.finding(finding.sentence, finding.values);
  }
  for (const auto& check : check_gradients(mesh, network, figures.starts, settings)) {
    report.check(check.name, check.ok, check.detail);
  }
}

// On the processor, all ways of one network together: parameters with gradients, and the activations of the
// one that takes a step, of which layer-wise keeps whole ones on every device.
int64_t bytes_needed(const LayeredNetwork& network, const std::vector<torch::Device>& devices,
                     int64_t batch) {
  const auto on_processor =
      std::count_if(devices.begin(), devices.end(), [](auto device) { return device.is_cpu(); });
  int64_t parameters = 0;
  for (const auto& param : initial_parameters(network, 0, torch::kFloat32)) parameters += param.numel();
  const auto elements = elements_per_row(network);
  const auto per_row = std::accumulate(elements.begin(), elements.end(), int64_t{28 * 28});
  const auto size = static_cast<int64_t>(sizeof(float));
  return size * (parameters * (8 + 3 * on_processor) + per_row * kCopies * batch * (1 + on_processor));
}

// Throws for what cannot be done, before anything is.
void check_fit(const std::vector<torch::Device>& devices, const LayeredNetwork& network,
               const BenchPartitionOptions& options) {
  need_devices(devices, 2, "a partition");
  const auto layers = network.layers.size();
  if (devices.size() > layers) {
    throw UsageError(fmt::format("{} has {}, network-wise on {} needs one for each of {}", network.name,
                                 counted(static_cast<int64_t>(layers), "layer"), spec_of(devices),
                                 counted(static_cast<int64_t>(devices.size()), "device")),
                     fmt::format("use at most {} devices", layers));
  }
  if (options.batch_size < options.micro_batches) {
    throw UsageError(fmt::format("--batch-size {} has fewer rows than --micro-batches {}", options.batch_size,
                                 options.micro_batches),
                     "each micro-batch takes at least one row");
  }
  need_host_memory(
      bytes_needed(network, devices, options.batch_size),
      fmt::format("{} of {} on {}", counted(options.batch_size, "row"), network.name, spec_of(devices)),
      "--batch-size");
}

void explain(BenchReport& report) {
  report.note("one device    the whole network on the first device, with the threads that each device has");
  report.note("network-wise  consecutive layers on each device; m: micro-batches that are under way at once");
  report.note(
      "layer-wise    channels and units of every layer shared out, outputs gathered behind each layer");
  report.note("data-wise     the rows shared out, gradients summed while backward runs: what lockstep does");
  report.note(
      "moved         read out of other devices' memory in a step, by all; the batch lies ready. Sums of "
      "gradients count as posted: 2 (n-1) x their size");
  report.note("meetings      hand-overs between two devices, gathers and sums over all of them, in a step");
  report.note("parameters    values on the fullest device; gradients take as much again");
  report.note("activations   what forward has allocated and backward still finds, on the fullest device");
}

}  // namespace

void setup_bench_partition(CLI::App& bench) {
  auto* partition = bench.add_subcommand(
      "partition", "A network over devices by layers, by channels, by rows: time, traffic, memory");
  auto options = std::make_shared<BenchPartitionOptions>();
  add_bench_flags(
      *partition, options->bench,
      "Devices to spread over; give it again for another list (default: two GPUs, cuda:0x2 or cpux2)");
  partition->add_option("--model", options->models, "Network; give it again for another (default: all)")
      ->check(one_of(layered_network_names()))
      ->allow_extra_args(false)
      ->default_str("");
  partition->add_option("--batch-size", options->batch_size, "Rows of a step, over all devices")
      ->check(positive_int(kMostRows));
  partition
      ->add_option("--micro-batches", options->micro_batches,
                   "Parts of the batch that network-wise has under way at once")
      ->check(positive_int(kMostRows));
  partition->callback([options] { run_bench_partition(*options); });
}

void run_bench_partition(const BenchPartitionOptions& options) {
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
  explain(report);
  for (const auto& devices : lists) {
    report.note(fmt::format("threads       {}: {} a device", spec_of(devices),
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

}  // namespace lockstep
