#include <lockstep/app/bench/overlap/queues/device.h>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {
namespace {

constexpr double kMatmulRounding = 1e-4;  // of the largest element: a float sum of some thousand terms

// (size, size) float, drawn on the host, so that all kinds of devices get the same numbers.
torch::Tensor random_matrix(int64_t size, uint64_t seed, torch::Device device) {
  return torch::rand({size, size}, at::make_generator<at::CPUGeneratorImpl>(seed)).to(device);
}

}  // namespace

// Allocates in the queue that uses the memory, so that it is near the core that first touches it.
OverlapDevice::OverlapDevice(const OverlapDeviceOptions& options)
    : options_(options),
      compute_(make_work_queue({.device = options.device,
                                .threads = options.threads,
                                .cores = options.compute_cores,
                                .rank = options.rank})),
      copier_(make_work_queue(
          {.device = options.device, .cores = options.copy_cores, .rank = options.rank, .copies = true})) {
  const std::vector<int64_t> sizes = {options.size, options.size};
  run_queued({compute_.get()}, [&] {
    compute_->queue("allocate", [&] {
      input_ = random_matrix(options.size, options.seed + static_cast<uint64_t>(options.rank), device());
      for (auto& result : results_) result = torch::empty(sizes, input_.options());
      for (auto& copy : pageable_) copy = torch::empty(sizes, torch::kFloat32);
      for (size_t i = 0; i < pinned_.size(); ++i) {
        pinned_[i] = device().is_cpu()
                         ? pageable_[i]
                         : torch::empty(sizes, torch::dtype(torch::kFloat32).pinned_memory(true));
      }
    });
  });
  fill_with_nan();
}

void OverlapDevice::queue_matmul(int64_t i) {
  compute_->queue(fmt::format("matmul {}", i), [this, i] { at::mm_out(results_[slot(i)], input_, input_); });
}

void OverlapDevice::queue_copy(WorkQueue& queue, int64_t i, HostMemory memory, int times) {
  queue.queue(fmt::format("copy {}", i), [this, i, memory, times] {
    for (int time = 0; time < times; ++time) copy_bytes(host(memory)[slot(i)], results_[slot(i)]);
  });
}

void OverlapDevice::queue_receive(const OverlapDevice& from, int64_t i) {
  compute_->queue(fmt::format("receive {}", i),
                  [this, &from, i] { copy_bytes(results_[slot(i)], from.results_[slot(i)]); });
}

void OverlapDevice::fill_with_nan() {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  run_queued(queues(), [&] {
    compute_->queue("spoil", [&] {
      for (auto& result : results_) result.fill_(nan);
    });
    copier_->queue("spoil", [&] {
      for (auto& copy : pageable_) copy.fill_(nan);
      for (auto& copy : pinned_) copy.fill_(nan);
    });
  });
}

int64_t OverlapDevice::wrong_results(const torch::Tensor& expected, int64_t slots) const {
  const double bound = kMatmulRounding * expected.abs().max().item<double>();
  return std::count_if(results_.begin(), results_.begin() + std::min(slots, kSlots), [&](const auto& result) {
    return !((result.cpu() - expected).abs().max().template item<double>() <= bound);  // NaN is wrong
  });
}

int64_t OverlapDevice::wrong_copies(HostMemory memory, int64_t slots) const {
  int64_t wrong = 0;
  for (int64_t i = 0; i < std::min(slots, kSlots); ++i) {
    if (!torch::equal(results_[slot(i)].cpu(), host(memory)[slot(i)])) ++wrong;
  }
  return wrong;
}

int64_t OverlapDevice::differing_results(const OverlapDevice& other, int64_t slots) const {
  int64_t differing = 0;
  for (size_t i = 0; i < static_cast<size_t>(slots); ++i) {
    if (!torch::equal(results_[i].cpu(), other.results_[i].cpu())) ++differing;
  }
  return differing;
}

std::vector<std::string> device_names(const std::vector<torch::Device>& devices) {
  std::vector<std::string> names;
  for (const auto device : devices) {
    const bool once = std::count(devices.begin(), devices.end(), device) == 1;
    if (once) {
      names.push_back(device.str());
    } else {
      names.push_back(fmt::format("{}{}{}", device.str(), device.is_cpu() ? ":" : "/", names.size()));
    }
  }
  return names;
}

std::vector<int> copier_cores(const std::vector<int>& allowed, int index, int devices, int threads) {
  std::vector<int> busy;
  for (int other = 0; other < devices; ++other) {
    const auto cores = cores_for_worker(allowed, other, devices, threads);
    busy.insert(busy.end(), cores.begin(), cores.end());
  }
  std::sort(busy.begin(), busy.end());
  std::vector<int> idle;
  std::set_difference(allowed.begin(), allowed.end(), busy.begin(), busy.end(), std::back_inserter(idle));
  return idle.empty() ? cores_for_worker(allowed, (index + 1) % devices, devices, threads) : idle;
}

bool copier_shares_cores(const std::vector<int>& allowed, int index, int devices, int threads) {
  const auto copying = copier_cores(allowed, index, devices, threads);
  const auto computing = cores_for_worker(allowed, index, devices, threads);
  return std::find_first_of(copying.begin(), copying.end(), computing.begin(), computing.end()) !=
         copying.end();
}

OverlapDevices make_overlap_devices(const std::vector<torch::Device>& devices, int threads, int64_t size,
                                    uint64_t seed) {
  const auto names = device_names(devices);
  const auto allowed = allowed_cores();
  const int count = static_cast<int>(devices.size());
  OverlapDevices made;
  for (int i = 0; i < count; ++i) {
    made.push_back(std::make_unique<OverlapDevice>(
        OverlapDeviceOptions{.device = devices[static_cast<size_t>(i)],
                             .name = names[static_cast<size_t>(i)],
                             .rank = i,
                             .threads = threads,
                             .compute_cores = cores_for_worker(allowed, i, count, threads),
                             .copy_cores = copier_cores(allowed, i, count, threads),
                             .size = size,
                             .seed = seed}));
  }
  return made;
}

int64_t overlap_device_bytes(int64_t size) {
  return (OverlapDevice::kSlots + 1) * size * size * static_cast<int64_t>(sizeof(float));
}

int64_t overlap_copies_bytes(int64_t size, torch::Device device) {
  const int64_t kinds = device.is_cpu() ? 1 : 2;  // pageable and pinned
  return kinds * OverlapDevice::kSlots * size * size * static_cast<int64_t>(sizeof(float));
}

}  // namespace lockstep
