#include <lockstep/app/bench/overlap/experiments.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kSideBySide = 1.1;  // of the slower one alone: all at once take hardly longer
constexpr double kInTurns = .9;      // of one after the other: hardly sooner
constexpr double kTells = 1.3;  // one after the other takes so much longer at least, or nothing can be told

double time_products(const std::vector<OverlapDevice*>& devices, int64_t iterations) {
  return run_queued(queues_of(devices), [&] {
    for (int64_t i = 0; i < iterations; ++i) {
      for (auto* device : devices) device->queue_product(i);
    }
  });
}

struct DeviceRun {
  std::string what;
  std::vector<OverlapDevice*> devices;
  std::vector<double> seconds = {};  // one a turn
};

// Each device alone, then all.
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

void say_what_devices_did(OverlapRun& run, const std::vector<DeviceRun>& runs) {
  std::vector<double> slower = runs.front().seconds;
  for (size_t r = 1; r + 1 < runs.size(); ++r) {
    for (size_t turn = 0; turn < slower.size(); ++turn) {
      slower[turn] = std::max(slower[turn], runs[r].seconds[turn]);
    }
  }
  std::vector<double> in_turns(slower.size());
  for (size_t r = 0; r + 1 < runs.size(); ++r) {
    for (size_t turn = 0; turn < slower.size(); ++turn) in_turns[turn] += runs[r].seconds[turn];
  }
  const auto ratio = paired_ratio(runs.back().seconds, slower);
  if (!ratio) return run.report.note(too_few_turns(run.plan.repeat));
  const double one_by_one =
      *paired_ratio(in_turns, slower);  // as many as there are devices, if they are alike
  const char* why = "they get in each other's way";
  if (*ratio <= kSideBySide) why = "the devices work side by side";
  if (*ratio >= kInTurns * one_by_one) why = "no sooner than one after the other";
  if (one_by_one < kTells) why = "the others take so little that this tells nothing of them";
  run.report.finding(
      fmt::format("{} take {:.2f} x as long as the slowest alone: {}", runs.back().what, *ratio, why),
      {{"experiment", "devices"}, {"over_slower", *ratio}});
}

}  // namespace

std::vector<torch::Tensor> expected_products(const std::vector<OverlapDevice*>& devices) {
  std::vector<torch::Tensor> products;
  for (const auto* device : devices) {
    const auto input = device->input().cpu();
    products.push_back(torch::mm(input, input));
  }
  return products;
}

void compare_devices(OverlapRun& run, OverlapDevices& devices) {
  auto runs = device_runs(devices);
  run.report.table("devices", {{.key = "what", .title = "run", .width = 14, .digits = kText},
                               {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                               {.key = "spread", .title = "spread", .unit = "%", .width = 6, .digits = 1},
                               {.key = "gflops", .title = "GFLOP/s", .digits = 1},
                               {.key = "turns", .title = "turns", .width = 5}});
  for (auto& each : runs) time_products(each.devices, run.plan.iterations);  // warm-up
  for (int turn = 0; run.report.takes_turn(turn, run.plan.repeat); ++turn) {
    for (auto& each : runs) each.seconds.push_back(time_products(each.devices, run.plan.iterations));
  }
  for (const auto& each : runs) {
    const auto products = run.plan.iterations * static_cast<int64_t>(each.devices.size());
    Json row = {{"what", each.what}};
    add_times(row, each.seconds);
    row["gflops"] = product_flops(run.plan.size, products) / median(each.seconds) / 1e9;
    run.report.row(std::move(row));
  }
  const auto& all = runs.back().devices;
  const auto expected = expected_products(all);
  int64_t wrong = 0;
  for (size_t d = 0; d < all.size(); ++d) wrong += all[d]->wrong_products(expected[d], run.plan.iterations);
  run.report.check("products", wrong == 0, counted(wrong, "result") + " unlike torch's own");
  say_what_devices_did(run, runs);
}

void compare_links(OverlapRun& run, OverlapDevices& devices) {
  struct Link {
    OverlapDevice *from, *to;
    std::vector<double> seconds = {};
  };
  std::vector<Link> links = {{devices[0].get(), devices[1].get()}, {devices[1].get(), devices[0].get()}};
  const auto time = [&](const Link& link) {
    return run_queued(link.to->queues(), [&] {
      for (int64_t i = 0; i < run.plan.iterations; ++i) link.to->queue_receive(*link.from, i);
    });
  };
  run.report.table("links", {{.key = "what", .title = "device to device", .width = 20, .digits = kText},
                             {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                             {.key = "spread", .title = "spread", .unit = "%", .width = 6, .digits = 1},
                             {.key = "gb_s", .title = "GB/s", .digits = 2},
                             {.key = "turns", .title = "turns", .width = 5}});
  int64_t differing = 0;
  for (auto& link : links) {  // the warm-up and check: different products to begin with, the same after it
    time_products({link.from, link.to}, OverlapDevice::kSlots);
    const bool differed = link.to->differing_results(*link.from) > 0;
    time(link);
    const auto received = std::min<int64_t>(run.plan.iterations, OverlapDevice::kSlots);
    differing += differed ? link.to->differing_results(*link.from, received) : received;
  }
  for (int turn = 0; run.report.takes_turn(turn, run.plan.repeat); ++turn) {
    for (auto& link : links) link.seconds.push_back(time(link));
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
