#include <lockstep/app/bench/step/layer_report.h>

#include <fmt/format.h>

#include <optional>

#include <lockstep/app/bench/step/layers.h>
#include <lockstep/parallel/devices.h>

namespace lockstep {

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
  for (const auto& layer : time_layers(plan, [&] { return report.interrupted(); })) {
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
