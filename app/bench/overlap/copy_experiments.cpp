// The experiments of experiments.h that compute results and copy them to the host.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kHidden = .8;     // at least this part: nearly all is hidden
constexpr double kNotHidden = .2;  // at most this part: nearly nothing is hidden

std::vector<torch::Device> devices_of(const OverlapDevices& overlap_devices) {
  std::vector<torch::Device> devices;
  for (const auto& device : overlap_devices) devices.push_back(device->device());
  return devices;
}

// The seconds of one way to compute and copy, by repetition. compute and copy are those of kAfterAll with the
// same kind of memory in the same repetition.
struct CopyTimes {
  Seconds compute, copy, together;
};

std::vector<Column> copy_columns() {
  return {{.key = "way", .title = "compute and copy", .width = 27, .digits = kText},
          {.key = "compute", .title = "compute", .unit = "s", .width = 8, .digits = 4},
          {.key = "copy", .title = "copy", .unit = "s", .width = 8, .digits = 4},
          {.key = "seconds", .title = "together", .unit = "s", .width = 8, .digits = 4},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "hidden", .title = "hidden", .width = 6, .digits = 2},
          {.key = "over_longer", .title = "/ longer", .width = 8, .digits = 2},
          {.key = "gb_s", .title = "copying", .unit = "GB/s", .width = 7, .digits = 2},
          {.key = "repeats", .title = "repeats", .width = 7}};
}

std::optional<double> over_longer(const CopyTimes& times) {
  Seconds longer;
  for (size_t i = 0; i < times.compute.size(); ++i) {
    longer.push_back(std::max(times.compute[i], times.copy[i]));
  }
  return paired_ratio(times.together, longer);
}

std::optional<double> hidden_of(const CopyTimes& times) {
  return hidden_part(times.compute, times.copy, times.together);
}

void print_ways(OverlapRun& run, const std::string& name, const std::vector<CopyWay>& ways,
                const std::vector<CopyTimes>& measured, double bytes) {
  run.report.table(name, copy_columns());
  for (size_t w = 0; w < ways.size(); ++w) {
    const auto& times = measured[w];
    auto row =
        times_row({{"way", ways[w].name}, {"compute", median(times.compute)}, {"copy", median(times.copy)}},
                  times.together);
    row["hidden"] = or_null(hidden_of(times));
    row["over_longer"] = or_null(over_longer(times));
    row["bytes"] = bytes;
    row["gb_s"] = bytes / median(times.copy) / 1e9;
    row["compute_seconds"] = times.compute;
    row["copy_seconds"] = times.copy;
    row["together_seconds"] = times.together;
    run.report.row(std::move(row));
  }
}

// Checks the slots of every device, which is also the warm-up, then measures all ways in all repetitions.
std::vector<CopyTimes> measure_copies(OverlapRun& run, const OverlapDevices& devices,
                                      const std::vector<CopyWay>& ways, int times) {
  int64_t wrong = 0;
  for (const auto& way : ways) wrong += wrong_slots(devices, way);
  run.report.check("order", wrong == 0,
                   counted(wrong, "slot") + " wrong: not computed, copied before that, or not copied");
  std::vector<CopyTimes> measured(ways.size());
  std::vector<std::function<double()>> cases;
  for (size_t w = 0; w < ways.size(); ++w) {
    cases.emplace_back([&, w] {
      const auto taken = compute_and_copy(devices, ways[w], run.plan.iterations, times);
      measured[w].compute.push_back(taken.compute);
      measured[w].copy.push_back(taken.copy);
      return taken.together;
    });
  }
  const auto together = run.report.in_turns(cases);
  size_t alone = 0;  // kAfterAll with the same kind of memory, which comes before the others
  for (size_t w = 0; w < ways.size(); ++w) {
    if (ways[w].order == CopyOrder::kAfterAll) alone = w;
    measured[w] = {.compute = measured[alone].compute, .copy = measured[alone].copy, .together = together[w]};
  }
  return measured;
}

// Traces each way once and checks the results and copies.
void trace_ways(OverlapRun& run, const std::string& experiment, const OverlapDevices& devices,
                const std::vector<CopyWay>& ways, int times) {
  int64_t wrong = 0;
  for (const auto& way : ways) {
    run.report.stop_if_interrupted("before the traced repetitions");
    Trace trace;
    compute_and_copy(devices, way, run.plan.iterations, times, &trace);
    run.keep_timeline(fmt::format("{}: {}", experiment, way.name), trace);
    for (const auto& device : devices) {
      wrong += device->wrong_results(device->expected_result()) +
               device->wrong_copies(way.memory, run.plan.iterations);
    }
  }
  if (run.trace) compute_and_copy(devices, ways.back(), run.plan.iterations, times, run.trace);
  run.report.check("copies, " + experiment, wrong == 0,
                   counted(wrong, "result") + " unlike torch's or unlike what was copied");
}

// Reports the hidden part of the ways that overlap: the chapter's and the last one.
void report_hidden(OverlapRun& run, const std::string& experiment, const std::vector<CopyWay>& ways,
                   const std::vector<CopyTimes>& measured) {
  if (!hidden_of(measured.back())) return run.report.note(too_few_repeats(measured.back().together.size()));
  for (size_t w = 0; w < ways.size(); ++w) {
    if (ways[w].order == CopyOrder::kAfterAll) continue;
    const double hidden = *hidden_of(measured[w]);
    const double longer = *over_longer(measured[w]);
    run.report.finding(
        fmt::format("{}, {}: {:.0f} % of the shorter part is hidden; together {:.2f} x the longer part: {}",
                    experiment, ways[w].name, 100 * hidden, longer, reach_of(hidden)),
        {{"experiment", experiment}, {"way", ways[w].name}, {"hidden", hidden}, {"over_longer", longer}});
  }
}

// Returns the hidden part of the last way.
std::optional<double> compare_ways(OverlapRun& run, const std::string& experiment,
                                   const OverlapDevices& devices, const std::vector<CopyWay>& ways) {
  int times = 1;
  for (const auto& device : devices) times = std::max(times, copies_per_result(device));
  explain_copies(run, devices, times);
  const auto measured = measure_copies(run, devices, ways, times);
  const auto results = static_cast<int64_t>(devices.size()) * run.plan.iterations * times;
  print_ways(run, experiment, ways, measured, static_cast<double>(devices.front()->result_bytes() * results));
  trace_ways(run, experiment, devices, ways, times);
  report_hidden(run, experiment, ways, measured);
  return hidden_of(measured.back());
}

}  // namespace

std::string reach_of(double hidden) {
  if (hidden > 1 + kNotHidden) return "the times scatter too much to tell";
  if (hidden < -kNotHidden) return "slower than one after the other";
  if (hidden >= kHidden) return "the two run at the same time";
  if (hidden <= kNotHidden) return "the two hardly run at the same time";
  return "they get in each other's way";
}

void explain_copies(OverlapRun& run, const OverlapDevices& devices, int times) {
  run.report.note("");
  if (any_gpu(devices_of(devices))) {
    run.report.note(
        "as the chapter does: each copy into pageable memory, right after its matmul on one stream");
    run.report.note(
        "overlapped: a stream for the copies, pinned memory, events both ways; the host only queues");
  }
  if (!any_cpu(devices_of(devices))) return;
  const int count = run.plan.exercise == 4 ? 1 : run.plan.count();
  const bool shares = copier_shares_cores(allowed_cores(), 0, count, run.plan.list.threads);
  run.report.note("on a CPU a copy is a memcpy, by a thread on cores on which its device");
  run.report.note(std::string(shares ? "computes, as there are no others" : "computes nothing") +
                  "; as the chapter does: by the computing thread itself, so that");
  run.report.note("nothing can overlap");
  if (times > 1) {
    run.report.note(fmt::format(
        "each result is copied {} times, so that copying takes about a third of the compute time", times));
  }
}

void compare_copies(OverlapRun& run, const OverlapDevices& devices) {
  const OverlapDevices first = {devices.front()};
  compare_ways(run, "copy", first, copy_ways(any_gpu(devices_of(first))));
}

std::optional<double> compare_all_at_once(OverlapRun& run, const OverlapDevices& devices) {
  auto ways = copy_ways(any_gpu(devices_of(devices)));
  std::erase_if(ways, [](const auto& way) { return way.order == CopyOrder::kBehind; });
  const bool all_cores = static_cast<int>(allowed_cores().size()) <= run.plan.count() * run.plan.list.threads;
  if (!any_gpu(devices_of(devices)) && all_cores) {
    run.report.note("");
    run.report.note("all cores compute: copies take time from the matmuls, so little can be hidden here");
  }
  return compare_ways(run, "all at once", devices, ways);
}

}  // namespace lockstep
