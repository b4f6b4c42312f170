#include <lockstep/app/bench/overlap/queues/copy.h>

#include <algorithm>
#include <cmath>

#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kLeastShare = .25;  // least time of the copies, as a share of the matmuls' time
constexpr double kCopyShare = .35;   // the share aimed at, with a margin
constexpr double kMostCopies = 1000;

void queue_matmuls(const std::vector<OverlapDevice*>& devices, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto* device : devices) device->queue_matmul(i);
  }
}

void queue_copies(const std::vector<OverlapDevice*>& devices, HostMemory memory, int64_t iterations,
                  int times) {
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto* device : devices) device->queue_copy(device->copier(), i, memory, times);
  }
}

void queue_copies_behind(const std::vector<OverlapDevice*>& devices, HostMemory memory, int64_t iterations,
                         int times) {
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto* device : devices) {
      device->queue_matmul(i);
      device->queue_copy(device->compute(), i, memory, times);
    }
  }
}

// A copy waits for its matmul, and a matmul for the copy of the result that it overwrites. The host does not
// wait; it queues everything at once.
void queue_copies_beside(const std::vector<OverlapDevice*>& devices, HostMemory memory, int64_t iterations,
                         int times) {
  std::vector<std::array<WorkQueue::Mark, OverlapDevice::kSlots>> copied(devices.size());
  for (int64_t i = 0; i < iterations; ++i) {
    for (size_t d = 0; d < devices.size(); ++d) {
      auto& device = *devices[d];
      auto& free = copied[d][static_cast<size_t>(i % OverlapDevice::kSlots)];
      if (free) device.compute().wait_for(free);
      device.queue_matmul(i);
      device.copier().wait_for(device.compute().mark());
      device.queue_copy(device.copier(), i, memory, times);
      free = device.copier().mark();
    }
  }
}

}  // namespace

std::vector<CopyWay> copy_ways(bool gpus) {
  if (!gpus) {
    return {{.name = "one after the other"},
            {.name = "as the chapter does", .order = CopyOrder::kBehind},
            {.name = "overlapped", .order = CopyOrder::kBeside}};
  }
  return {{.name = "one after the other"},
          {.name = "as the chapter does", .order = CopyOrder::kBehind},
          {.name = "one after the other, pinned", .memory = HostMemory::kPinned},
          {.name = "overlapped, pinned", .order = CopyOrder::kBeside, .memory = HostMemory::kPinned}};
}

CopySeconds compute_and_copy(const std::vector<OverlapDevice*>& devices, const CopyWay& way,
                             int64_t iterations, int times) {
  const auto queues = queues_of(devices);
  CopySeconds seconds;
  switch (way.order) {
    case CopyOrder::kAfterAll:
      seconds.compute = run_queued(queues, [&] { queue_matmuls(devices, iterations); });
      seconds.copy = run_queued(queues, [&] { queue_copies(devices, way.memory, iterations, times); });
      seconds.together = seconds.compute + seconds.copy;
      break;
    case CopyOrder::kBehind:
      seconds.together =
          run_queued(queues, [&] { queue_copies_behind(devices, way.memory, iterations, times); });
      break;
    case CopyOrder::kBeside:
      seconds.together =
          run_queued(queues, [&] { queue_copies_beside(devices, way.memory, iterations, times); });
      break;
  }
  return seconds;
}

int copies_per_result(OverlapDevice& device) {
  constexpr int kRepeats = 3, kTries = 5;
  if (!device.device().is_cpu()) return 1;
  const auto way = copy_ways(false).front();
  compute_and_copy({&device}, way, OverlapDevice::kSlots, 1);  // warm-up
  double times = 1;
  for (int i = 0; i < kTries; ++i) {  // time is not proportional to copies: caches are warm
    std::vector<double> shares;
    for (int repetition = 0; repetition < kRepeats; ++repetition) {
      const auto taken = compute_and_copy({&device}, way, OverlapDevice::kSlots, static_cast<int>(times));
      shares.push_back(taken.copy / taken.compute);
    }
    if (median(shares) >= kLeastShare || times == kMostCopies) break;
    times = std::min(std::ceil(times * kCopyShare / median(shares)), kMostCopies);
  }
  return static_cast<int>(times);
}

int64_t wrong_slots(const std::vector<OverlapDevice*>& devices, const CopyWay& way,
                    const std::vector<torch::Tensor>& expected) {
  for (auto* device : devices) device->fill_with_nan();
  compute_and_copy(devices, way, OverlapDevice::kSlots, 1);
  int64_t wrong = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    wrong += devices[d]->wrong_results(expected[d]) + devices[d]->wrong_copies(way.memory);
  }
  return wrong;
}

std::vector<WorkQueue*> queues_of(const std::vector<OverlapDevice*>& devices) {
  std::vector<WorkQueue*> queues;
  for (auto* device : devices) {
    for (auto* queue : device->queues()) queues.push_back(queue);
  }
  return queues;
}

void trace_to(Trace* trace, const std::vector<OverlapDevice*>& devices) {
  for (auto* queue : queues_of(devices)) queue->trace_to(trace);
}

}  // namespace lockstep
