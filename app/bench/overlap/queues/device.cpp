#include <lockstep/app/bench/overlap/queues/device.h>

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {
namespace {

constexpr double kMatmulRounding = 1e-4;  // of the largest element: a float sum of some thousand terms

int size_of(const OverlapList& list) { return static_cast<int>(list.devices.size()); }

}  // namespace

// Allocates in the queue that uses the memory, so that it is near the core that first touches it.
OverlapDevice::OverlapDevice(const OverlapList& list, int rank, int64_t size, uint64_t seed)
    : name_(device_names(list.devices)[static_cast<size_t>(rank)]),
      size_(size),
      compute_({.device = list.devices[static_cast<size_t>(rank)],
                .threads = list.threads,
                .cores = cores_for_worker(allowed_cores(), rank, size_of(list), list.threads),
                .rank = rank}),
      copier_({.device = device(),
               .cores = copier_cores(allowed_cores(), rank, size_of(list), list.threads),
               .rank = rank,
               .copies = true}) {
  run_queued({&compute_}, [&] {
    compute_.queue("allocate", [&] {
      const auto on_host = torch::dtype(torch::kFloat32);
      input_ = random_matrix(size, seed + static_cast<uint64_t>(rank), device());
      for (auto& result : results_) result = torch::empty_like(input_);
      for (auto& copy : pageable_) copy = torch::empty({size, size}, on_host);
      pinned_ = pageable_;
      if (device().is_cpu()) return;
      for (auto& copy : pinned_) copy = torch::empty({size, size}, on_host.pinned_memory(true));
    });
  });
  fill_with_nan();
}

TaskGraph::Task OverlapDevice::add_matmul(TaskGraph& graph, int64_t i, const Tasks& after) {
  return graph.add(fmt::format("matmul {}", i), compute_, after,
                   [this, i] { at::mm_out(results_[slot(i)], input_, input_); });
}

TaskGraph::Task OverlapDevice::add_copy(TaskGraph& graph, WorkQueue& queue, int64_t i, HostMemory memory,
                                        int times, const Tasks& after) {
  return graph.add(fmt::format("copy {}", i), queue, after, [this, i, memory, times] {
    for (int time = 0; time < times; ++time) copy_bytes(host(memory)[slot(i)], results_[slot(i)]);
  });
}

TaskGraph::Task OverlapDevice::add_receive(TaskGraph& graph, const OverlapDevice& from, int64_t i) {
  return graph.add(fmt::format("receive {}", i), compute_, {},
                   [this, &from, i] { copy_bytes(results_[slot(i)], from.results_[slot(i)]); });
}

void OverlapDevice::fill_with_nan() {
  const auto spoil = [](const Ring& ring) {
    for (const auto& matrix : ring) matrix.fill_(std::numeric_limits<float>::quiet_NaN());
  };
  run_queued({&compute_, &copier_}, [&] {
    compute_.queue("spoil", [&] { spoil(results_); });
    copier_.queue("spoil", [&] {
      spoil(pageable_);
      spoil(pinned_);
    });
  });
}

torch::Tensor OverlapDevice::expected_result() const {
  const auto input = input_.cpu();
  return torch::mm(input, input);
}

int64_t OverlapDevice::wrong_results(const torch::Tensor& expected, int64_t slots) const {
  return std::count_if(results_.begin(), results_.begin() + std::min(slots, kSlots), [&](const auto& result) {
    return !(relative_error(result, expected) <= kMatmulRounding);  // NaN is wrong
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
  for (int64_t i = 0; i < slots; ++i) {
    if (!torch::equal(results_[slot(i)].cpu(), other.results_[slot(i)].cpu())) ++differing;
  }
  return differing;
}

OverlapDevices make_overlap_devices(const OverlapList& list, int64_t size, uint64_t seed) {
  OverlapDevices made;
  for (int rank = 0; rank < size_of(list); ++rank) {
    made.push_back(std::make_shared<OverlapDevice>(list, rank, size, seed));
  }
  return made;
}

std::vector<std::string> device_names(const std::vector<torch::Device>& devices) {
  std::vector<std::string> names;
  for (const auto device : devices) {
    const bool once = std::count(devices.begin(), devices.end(), device) == 1;
    names.push_back(once ? device.str()
                         : fmt::format("{}{}{}", device.str(), device.is_cpu() ? ":" : "/", names.size()));
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

int64_t overlap_device_bytes(int64_t size) { return matrix_bytes(size, OverlapDevice::kSlots + 1); }

int64_t overlap_copies_bytes(int64_t size, torch::Device device) {
  const int64_t kinds = device.is_cpu() ? 1 : 2;  // pageable and pinned
  return matrix_bytes(size, kinds * OverlapDevice::kSlots);
}

}  // namespace lockstep
