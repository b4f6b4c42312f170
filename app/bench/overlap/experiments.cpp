#include <lockstep/app/bench/overlap/experiments.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kSideBySide = 1.1;  // x the slowest device's time, at most: devices work side by side
constexpr double kSerial = .9;       // x the sum of all times, at least: no gain
constexpr double kTells = 1.3;       // x the slowest device's time: a smaller sum of all times tells nothing

TaskGraph matmuls_of(const OverlapDevices& devices, int64_t iterations) {
  TaskGraph graph;
  for (int64_t i = 0; i < iterations; ++i) {
    for (const auto& device : devices) device->add_matmul(graph, i);
  }
  return graph;
}

// seconds: each device alone, then all of them.
void report_devices(OverlapRun& run, const std::string& all, const std::vector<Seconds>& seconds) {
  Seconds slowest = seconds.front(), serial(slowest.size());
  for (size_t device = 0; device + 1 < seconds.size(); ++device) {
    for (size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], seconds[device][i]);
      serial[i] += seconds[device][i];
    }
  }
  const auto ratio = paired_ratio(seconds.back(), slowest);
  if (!ratio) return run.report.note(too_few_repeats(slowest.size()));
  const double one_by_one = *paired_ratio(serial, slowest);  // the number of devices, if they are alike
  const char* why = "they get in each other's way";
  if (*ratio <= kSideBySide) why = "the devices work side by side";
  if (*ratio >= kSerial * one_by_one) why = "no faster than one after the other";
  if (one_by_one < kTells) why = "the other devices take too little time to tell";
  run.report.finding(fmt::format("{} take {:.2f} x as long as the slowest alone: {}", all, *ratio, why),
                     {{"experiment", "devices"}, {"over_slower", *ratio}});
}

struct OverlapLink {
  std::shared_ptr<OverlapDevice> from, to;
  TaskGraph graph = {};
};

// Results of the two devices must differ before a copy and agree after it. Returns the number of wrong
// results. Also the warm-up.
int64_t check_link(OverlapLink& link, int64_t iterations) {
  matmuls_of({link.from, link.to}, OverlapDevice::kSlots).run();
  const bool differed = link.to->differing_results(*link.from) > 0;
  for (int64_t i = 0; i < iterations; ++i) link.to->add_receive(link.graph, *link.from, i);
  link.graph.run();
  const auto received = std::min<int64_t>(iterations, OverlapDevice::kSlots);
  return differed ? link.to->differing_results(*link.from, received) : received;
}

}  // namespace

void compare_devices(OverlapRun& run, const OverlapDevices& devices) {
  const auto iterations = run.plan.iterations;
  std::vector<std::string> names;
  std::vector<TaskGraph> graphs;
  for (const auto& device : devices) {
    names.push_back(device->name());
    graphs.push_back(matmuls_of({device}, iterations));
  }
  names.push_back(devices.size() == 2 ? "both at once" : "all at once");
  graphs.push_back(matmuls_of(devices, iterations));
  run.report.table("devices", time_columns("run", 14, {{.key = "gflops", .title = "GFLOP/s", .digits = 1}}));
  std::vector<std::function<double()>> cases;
  for (auto& graph : graphs) {
    graph.run();  // warm-up
    cases.emplace_back([&graph] { return graph.run(); });
  }
  const auto seconds = run.report.in_turns(cases);
  const double one = 2 * std::pow(static_cast<double>(run.plan.size), 3) / 1e9;  // GFLOP
  for (size_t i = 0; i < graphs.size(); ++i) {
    auto row = times_row({{"what", names[i]}}, seconds[i]);
    row["gflops"] = one * static_cast<double>(graphs[i].size()) / median(seconds[i]);
    run.report.row(std::move(row));
  }
  graphs.back().run();  // all devices at once, whichever was measured last
  int64_t wrong = 0;
  for (const auto& device : devices) wrong += device->wrong_results(device->expected_result(), iterations);
  run.report.check("matmuls", wrong == 0, counted(wrong, "result") + " unlike torch's");
  report_devices(run, names.back(), seconds);
}

void compare_links(OverlapRun& run, const OverlapDevices& devices) {
  std::vector<OverlapLink> links = {{devices[0], devices[1]}, {devices[1], devices[0]}};
  run.report.table("links",
                   time_columns("device to device", 20, {{.key = "gb_s", .title = "GB/s", .digits = 2}}));
  int64_t differing = 0;
  std::vector<std::function<double()>> cases;
  for (auto& link : links) {
    differing += check_link(link, run.plan.iterations);
    cases.emplace_back([&link] { return link.graph.run(); });
  }
  const auto seconds = run.report.in_turns(cases);
  const auto one = static_cast<double>(devices[0]->result_bytes());
  const double bytes = one * static_cast<double>(run.plan.iterations);
  for (size_t i = 0; i < links.size(); ++i) {
    auto row = times_row({{"what", links[i].from->name() + " -> " + links[i].to->name()}}, seconds[i]);
    row["bytes"] = bytes;
    row["gb_s"] = bytes / median(seconds[i]) / 1e9;
    run.report.row(std::move(row));
  }
  run.report.check("received", differing == 0, counted(differing, "result") + " unlike the sender's");
  const double rate = bytes / median(seconds[0]) / 1e9;
  run.report.finding(
      fmt::format("a result of {:.1f} MB goes from device to device in {:.2f} ms ({:.1f} GB/s)", one / 1e6,
                  one / rate / 1e6, rate),
      {{"experiment", "links"}, {"gb_s", rate}});
}

}  // namespace lockstep
