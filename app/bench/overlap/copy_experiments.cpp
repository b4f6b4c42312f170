// The experiments of experiments.h that compute results and copy them to the host.
#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kHidden = .8;     // at least this part: nearly all is hidden
constexpr double kNotHidden = .2;  // at most this part: nearly nothing is hidden

bool any_gpu(const std::vector<OverlapDevice*>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](auto* device) { return !device->device().is_cpu(); });
}

std::vector<Column> columns() {
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

std::vector<double> longer_of(const CopyTimes& times) {
  std::vector<double> longer;
  for (size_t i = 0; i < times.compute.size(); ++i) {
    longer.push_back(std::max(times.compute[i], times.copy[i]));
  }
  return longer;
}

std::optional<double> hidden_of(const CopyTimes& times) {
  return hidden_part(times.compute, times.copy, times.together);
}

void print_ways(OverlapRun& run, const std::string& name, const std::vector<CopyWay>& ways,
                const std::vector<CopyTimes>& measured, double bytes) {
  run.report.table(name, columns());
  for (size_t w = 0; w < ways.size(); ++w) {
    const auto& times = measured[w];
    Json row = {{"way", ways[w].name}, {"compute", median(times.compute)}, {"copy", median(times.copy)}};
    add_times(row, times.together);
    row["hidden"] = or_null(hidden_of(times));
    row["over_longer"] = or_null(paired_ratio(times.together, longer_of(times)));
    row["bytes"] = bytes;
    row["gb_s"] = bytes / median(times.copy) / 1e9;
    row["compute_seconds"] = times.compute;
    row["copy_seconds"] = times.copy;
    row["together_seconds"] = times.together;
    run.report.row(std::move(row));
  }
}

// Traces each way once and checks the results and copies.
void trace_ways(OverlapRun& run, const std::string& experiment, const std::vector<OverlapDevice*>& devices,
                const std::vector<CopyWay>& ways, int times) {
  const auto expected = expected_results(devices);
  int64_t wrong = 0;
  for (const auto& way : ways) {
    run.report.stop_if_interrupted("before the traced repetitions");
    Trace trace;
    trace_copies(trace, run, devices, way, times);
    run.keep_timeline(fmt::format("{}: {}", experiment, way.name), trace);
    for (size_t d = 0; d < devices.size(); ++d) {
      wrong +=
          devices[d]->wrong_results(expected[d]) + devices[d]->wrong_copies(way.memory, run.plan.iterations);
    }
  }
  if (run.trace) trace_copies(*run.trace, run, devices, ways.back(), times);
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
    const double over_longer = *paired_ratio(measured[w].together, longer_of(measured[w]));
    run.report.finding(
        fmt::format("{}, {}: {:.0f} % of the shorter part is hidden; together {:.2f} x the longer part: {}",
                    experiment, ways[w].name, 100 * hidden, over_longer, reach_of(hidden)),
        {{"experiment", experiment},
         {"way", ways[w].name},
         {"hidden", hidden},
         {"over_longer", over_longer}});
  }
}

double bytes_copied(const OverlapRun& run, const std::vector<OverlapDevice*>& devices, int times) {
  return static_cast<double>(devices.front()->result_bytes()) * static_cast<double>(devices.size()) *
         static_cast<double>(run.plan.iterations) * times;
}

std::vector<CopyTimes> compare_ways(OverlapRun& run, const std::string& experiment,
                                    const std::vector<OverlapDevice*>& devices,
                                    const std::vector<CopyWay>& ways) {
  int times = 1;
  for (auto* device : devices) times = std::max(times, copies_per_result(*device));
  explain_copies(run, devices, times);
  const auto measured = measure_copies(run, devices, ways, times);
  print_ways(run, experiment, ways, measured, bytes_copied(run, devices, times));
  trace_ways(run, experiment, devices, ways, times);
  report_hidden(run, experiment, ways, measured);
  return measured;
}

}  // namespace

std::string reach_of(double hidden) {
  if (hidden > 1 + kNotHidden) return "the times scatter too much to tell";
  if (hidden < -kNotHidden) return "slower than one after the other";
  if (hidden >= kHidden) return "the two run at the same time";
  if (hidden <= kNotHidden) return "the two hardly run at the same time";
  return "they get in each other's way";
}

void trace_copies(Trace& trace, const OverlapRun& run, const std::vector<OverlapDevice*>& devices,
                  const CopyWay& way, int times) {
  trace_to(&trace, devices);
  compute_and_copy(devices, way, run.plan.iterations, times);
  trace_to(nullptr, devices);
}

void explain_copies(OverlapRun& run, const std::vector<OverlapDevice*>& devices, int times) {
  run.report.note("");
  if (any_gpu(devices)) {
    run.report.note(
        "as the chapter does: each copy into pageable memory, right after its matmul on one stream");
    run.report.note(
        "overlapped: a stream for the copies, pinned memory, events both ways; the host only queues");
  }
  if (std::all_of(devices.begin(), devices.end(), [](auto* device) { return !device->device().is_cpu(); }))
    return;
  const int count = run.plan.exercise == 4 ? 1 : static_cast<int>(run.plan.devices.size());
  const bool shares = copier_shares_cores(allowed_cores(), 0, count, run.plan.threads);
  run.report.note("on a CPU a copy is a memcpy, by a thread on cores on which its device");
  run.report.note(std::string(shares ? "computes, as there are no others" : "computes nothing") +
                  "; as the chapter does: by the computing thread itself, so that");
  run.report.note("nothing can overlap");
  if (times > 1) {
    run.report.note(fmt::format(
        "each result is copied {} times, so that copying takes about a third of the compute time", times));
  }
}

std::vector<CopyTimes> measure_copies(OverlapRun& run, const std::vector<OverlapDevice*>& devices,
                                      const std::vector<CopyWay>& ways, int times) {
  const auto expected = expected_results(devices);
  int64_t wrong = 0;
  for (const auto& way : ways) wrong += wrong_slots(devices, way, expected);
  run.report.check("order", wrong == 0,
                   counted(wrong, "slot") + " wrong: not computed, copied before that, or not copied");
  std::vector<CopyTimes> measured(ways.size());
  for (int repetition = 0; run.report.takes_repetition(repetition, run.plan.repeat); ++repetition) {
    CopySeconds parts;
    for (size_t w = 0; w < ways.size(); ++w) {
      const auto taken = compute_and_copy(devices, ways[w], run.plan.iterations, times);
      if (ways[w].order == CopyOrder::kAfterAll) parts = taken;  // also for the ways that follow
      measured[w].compute.push_back(parts.compute);
      measured[w].copy.push_back(parts.copy);
      measured[w].together.push_back(taken.together);
    }
  }
  return measured;
}

void compare_copies(OverlapRun& run, OverlapDevices& devices) {
  const std::vector<OverlapDevice*> first = {devices.front().get()};
  const auto ways = copy_ways(any_gpu(first));
  compare_ways(run, "copy", first, ways);
}

std::optional<double> compare_all_at_once(OverlapRun& run, OverlapDevices& devices) {
  std::vector<OverlapDevice*> all;
  for (auto& device : devices) all.push_back(device.get());
  auto ways = copy_ways(any_gpu(all));
  std::erase_if(ways, [](const auto& way) { return way.order == CopyOrder::kBehind; });
  const int count = static_cast<int>(devices.size());
  if (std::all_of(all.begin(), all.end(), [](auto* device) { return device->device().is_cpu(); }) &&
      static_cast<int>(allowed_cores().size()) <= count * run.plan.threads) {
    run.report.note("");
    run.report.note("all cores compute: copies take time from the matmuls, so little can be hidden here");
  }
  return hidden_of(compare_ways(run, "all at once", all, ways).back());
}

}  // namespace lockstep
