#include <lockstep/app/bench/overlap/experiments.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kSideBySide = 1.1;  // x the slowest device's time, at most: devices work side by side
constexpr double kSerial = .9;       // x the sum of all times, at least: no gain
constexpr double kTells = 1.3;       // x the slowest device's time: a smaller sum of all times tells nothing

double time_matmuls(const std::vector<OverlapDevice*>& devices, int64_t iterations) {
  return run_queued(queues_of(devices), [&] {
    for (int64_t i = 0; i < iterations; ++i) {
      for (auto* device : devices) device->queue_matmul(i);
    }
  });
}

struct DeviceRun {
  std::string what;
  std::vector<OverlapDevice*> devices;
  std::vector<double> seconds = {};  // by repetition
};

// Each device alone, then all devices.
std::vector<DeviceRun> device_runs(OverlapDevices& devices) {
  std::vector<DeviceRun> runs;
  DeviceRun all{.what = devices.size() == 2 ? "both at once" : "all at once", .devices = {}};
  for (auto& device : devices) {
    runs.push_back({.what = device->name(), .devices = {device.get()}});
    all.devices.push_back(device.get());
  }
  runs.push_back(std::move(all));
  return runs;
}

void report_devices(OverlapRun& run, const std::vector<DeviceRun>& runs) {
  std::vector<double> slowest = runs.front().seconds;
  for (size_t r = 1; r + 1 < runs.size(); ++r) {
    for (size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], runs[r].seconds[i]);
    }
  }
  std::vector<double> serial(slowest.size());
  for (size_t r = 0; r + 1 < runs.size(); ++r) {
    for (size_t i = 0; i < slowest.size(); ++i) serial[i] += runs[r].seconds[i];
  }
  const auto ratio = paired_ratio(runs.back().seconds, slowest);
  if (!ratio) return run.report.note(too_few_repeats(runs.back().seconds.size()));
  const double one_by_one = *paired_ratio(serial, slowest);  // the number of devices, if they are alike
  const char* why = "they get in each other's way";
  if (*ratio <= kSideBySide) why = "the devices work side by side";
  if (*ratio >= kSerial * one_by_one) why = "no faster than one after the other";
  if (one_by_one < kTells) why = "the other devices take too little time to tell";
  run.report.finding(
      fmt::format("{} take {:.2f} x as long as the slowest alone: {}", runs.back().what, *ratio, why),
      {{"experiment", "devices"}, {"over_slower", *ratio}});
}

struct DevicePair {
  OverlapDevice *from, *to;
  std::vector<double> seconds = {};  // by repetition
};

double time_link(const DevicePair& link, int64_t iterations) {
  return run_queued(link.to->queues(), [&] {
    for (int64_t i = 0; i < iterations; ++i) link.to->queue_receive(*link.from, i);
  });
}

// Results of the two devices must differ before a copy and agree after it. Returns the number of wrong
// results.
int64_t check_link(const DevicePair& link, int64_t iterations) {
  time_matmuls({link.from, link.to}, OverlapDevice::kSlots);
  const bool differed = link.to->differing_results(*link.from) > 0;
  time_link(link, iterations);
  const auto received = std::min<int64_t>(iterations, OverlapDevice::kSlots);
  return differed ? link.to->differing_results(*link.from, received) : received;
}

}  // namespace

std::vector<torch::Tensor> expected_results(const std::vector<OverlapDevice*>& devices) {
  std::vector<torch::Tensor> results;
  for (const auto* device : devices) {
    const auto input = device->input().cpu();
    results.push_back(torch::mm(input, input));
  }
  return results;
}

void compare_devices(OverlapRun& run, OverlapDevices& devices) {
  auto runs = device_runs(devices);
  run.report.table("devices", {{.key = "what", .title = "run", .width = 14, .digits = kText},
                               {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                               {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
                               {.key = "gflops", .title = "GFLOP/s", .digits = 1},
                               {.key = "repeats", .title = "repeats", .width = 7}});
  for (auto& each : runs) time_matmuls(each.devices, run.plan.iterations);  // warm-up
  for (int repetition = 0; run.report.takes_repetition(repetition, run.plan.repeat); ++repetition) {
    for (auto& each : runs) each.seconds.push_back(time_matmuls(each.devices, run.plan.iterations));
  }
  for (const auto& each : runs) {
    const auto matmuls = run.plan.iterations * static_cast<int64_t>(each.devices.size());
    Json row = {{"what", each.what}};
    add_times(row, each.seconds);
    row["gflops"] = matmul_flops(run.plan.size, matmuls) / median(each.seconds) / 1e9;
    run.report.row(std::move(row));
  }
  const auto& all = runs.back().devices;
  const auto expected = expected_results(all);
  int64_t wrong = 0;
  for (size_t d = 0; d < all.size(); ++d) wrong += all[d]->wrong_results(expected[d], run.plan.iterations);
  run.report.check("matmuls", wrong == 0, counted(wrong, "result") + " unlike torch's");
  report_devices(run, runs);
}

void compare_links(OverlapRun& run, OverlapDevices& devices) {
  std::vector<DevicePair> links = {{devices[0].get(), devices[1].get()},
                                   {devices[1].get(), devices[0].get()}};
  run.report.table("links", {{.key = "what", .title = "device to device", .width = 20, .digits = kText},
                             {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                             {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
                             {.key = "gb_s", .title = "GB/s", .digits = 2},
                             {.key = "repeats", .title = "repeats", .width = 7}});
  int64_t differing = 0;
  for (const auto& link : links) differing += check_link(link, run.plan.iterations);  // and warm-up
  for (int repetition = 0; run.report.takes_repetition(repetition, run.plan.repeat); ++repetition) {
    for (auto& link : links) link.seconds.push_back(time_link(link, run.plan.iterations));
  }
  std::vector<double> rates;
  for (const auto& link : links) {
    const auto bytes = static_cast<double>(link.from->result_bytes() * run.plan.iterations);
    rates.push_back(bytes / median(link.seconds) / 1e9);
    Json row = {{"what", link.from->name() + " -> " + link.to->name()}};
    add_times(row, link.seconds);
    row["bytes"] = bytes;
    row["gb_s"] = rates.back();
    run.report.row(std::move(row));
  }
  run.report.check("received", differing == 0, counted(differing, "result") + " unlike the sender's");
  run.report.finding(
      fmt::format("a result of {:.1f} MB goes from device to device in {:.2f} ms ({:.1f} GB/s)",
                  static_cast<double>(devices[0]->result_bytes()) / 1e6,
                  static_cast<double>(devices[0]->result_bytes()) / rates[0] / 1e6, rates[0]),
      {{"experiment", "links"}, {"gb_s", rates[0]}});
}

}  // namespace lockstep
