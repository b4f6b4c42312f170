#include <lockstep/app/bench/overlap/queues/copy.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kLeastShare = .25;  // least time of the copies, as a share of the matmuls' time
constexpr double kCopyShare = .35;   // the share aimed at, with a margin
constexpr double kMostCopies = 1000;

}  // namespace

std::vector<CopyWay> copy_ways(bool gpus) {
  std::vector<CopyWay> ways = {{.name = "one after the other"},
                               {.name = "as the chapter does", .order = CopyOrder::kBehind}};
  const auto memory = gpus ? HostMemory::kPinned : HostMemory::kPageable;
  if (gpus) ways.push_back({.name = "one after the other, pinned", .memory = memory});
  ways.push_back(
      {.name = gpus ? "overlapped, pinned" : "overlapped", .order = CopyOrder::kBeside, .memory = memory});
  return ways;
}

// With kBeside a copy waits for its matmul, and a matmul for the copy of the result that it overwrites.
CopySeconds compute_and_copy(const OverlapDevices& devices, const CopyWay& way, int64_t iterations, int times,
                             Trace* trace) {
  TaskGraph first, copies_after;
  auto& copies = way.order == CopyOrder::kAfterAll ? copies_after : first;
  const bool beside = way.order == CopyOrder::kBeside;
  using Tasks = OverlapDevice::Tasks;
  std::map<std::pair<OverlapDevice*, int64_t>, Tasks> copied;  // the latest copy of a device's slot
  for (int64_t i = 0; i < iterations; ++i) {
    for (const auto& device : devices) {
      auto& latest = copied[{device.get(), i % OverlapDevice::kSlots}];
      const auto matmul = device->add_matmul(first, i, beside ? latest : Tasks{});
      auto& queue = way.order == CopyOrder::kBehind ? device->compute() : device->copier();
      latest = {device->add_copy(copies, queue, i, way.memory, times, beside ? Tasks{matmul} : Tasks{})};
    }
  }
  CopySeconds seconds{.together = first.run(trace)};
  if (way.order != CopyOrder::kAfterAll) return seconds;
  seconds.compute = seconds.together;
  seconds.copy = copies_after.run(trace);
  seconds.together += seconds.copy;
  return seconds;
}

int copies_per_result(const std::shared_ptr<OverlapDevice>& device) {
  constexpr int kRepeats = 3, kTries = 5;
  if (!device->device().is_cpu()) return 1;
  const auto way = copy_ways(false).front();
  compute_and_copy({device}, way, OverlapDevice::kSlots, 1);  // warm-up
  double times = 1;
  for (int i = 0; i < kTries; ++i) {  // time is not proportional to copies: caches are warm
    std::vector<double> shares;
    for (int repetition = 0; repetition < kRepeats; ++repetition) {
      const auto taken = compute_and_copy({device}, way, OverlapDevice::kSlots, static_cast<int>(times));
      shares.push_back(taken.copy / taken.compute);
    }
    if (median(shares) >= kLeastShare || times == kMostCopies) break;
    times = std::min(std::ceil(times * kCopyShare / median(shares)), kMostCopies);
  }
  return static_cast<int>(times);
}

int64_t wrong_slots(const OverlapDevices& devices, const CopyWay& way) {
  for (const auto& device : devices) device->fill_with_nan();
  compute_and_copy(devices, way, OverlapDevice::kSlots, 1);
  int64_t wrong = 0;
  for (const auto& device : devices) {
    wrong += device->wrong_results(device->expected_result()) + device->wrong_copies(way.memory);
  }
  return wrong;
}

}  // namespace lockstep
