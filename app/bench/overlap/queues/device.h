// A device of `bench overlap`: it multiplies a matrix by itself and copies the results to the host.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/queues/work_queue.h>

namespace lockstep {

// The host memory for a GPU's results. A GPU can write pinned memory while the host does other work. A CPU's
// results always go to plain memory.
enum class HostMemory { kPageable, kPinned };

struct OverlapDeviceOptions {
  torch::Device device = torch::kCPU;
  std::string name = {};  // "cpu:1"
  int rank = 0;           // place in the list of devices
  int threads = 1;
  std::vector<int> compute_cores = {};
  std::vector<int> copy_cores = {};
  int64_t size = 0;
  uint64_t seed = 0;
};

// Two queues, one for matmuls and one for copies: streams of a GPU, or threads on different cores. Results
// and copies lie in rings of kSlots matrices: the i-th result overwrites the (i - kSlots)-th. All memory is
// touched before anything is timed, so that no figure includes page faults.
class OverlapDevice {
 public:
  static constexpr int64_t kSlots = 4;

  explicit OverlapDevice(const OverlapDeviceOptions& options);

  torch::Device device() const { return options_.device; }
  const std::string& name() const { return options_.name; }
  int64_t result_bytes() const { return options_.size * options_.size * static_cast<int64_t>(sizeof(float)); }
  const torch::Tensor& input() const { return input_; }  // (size, size) float, uniform in [0, 1)

  WorkQueue& compute() { return *compute_; }
  WorkQueue& copier() { return *copier_; }
  std::vector<WorkQueue*> queues() { return {compute_.get(), copier_.get()}; }

  void queue_matmul(int64_t i);
  // Copies the i-th result to the host `times` times, in this queue of the device.
  void queue_copy(WorkQueue& queue, int64_t i, HostMemory memory, int times);
  // Copies another device's i-th result over this device's, in the compute queue.
  void queue_receive(const OverlapDevice& from, int64_t i);

  // Fills all results and copies with NaN, to reveal what is not written afterwards.
  void fill_with_nan();

  // How many of the first `slots` slots have a result that differs from `expected` by more than rounding, a
  // copy with other bits than the result, or other bits than another device's result.
  int64_t wrong_results(const torch::Tensor& expected, int64_t slots = kSlots) const;
  int64_t wrong_copies(HostMemory memory, int64_t slots = kSlots) const;
  int64_t differing_results(const OverlapDevice& other, int64_t slots = kSlots) const;

 private:
  using Ring = std::array<torch::Tensor, kSlots>;  // (size, size) float
  static size_t slot(int64_t i) { return static_cast<size_t>(i % kSlots); }
  const Ring& host(HostMemory memory) const { return memory == HostMemory::kPinned ? pinned_ : pageable_; }

  const OverlapDeviceOptions options_;
  torch::Tensor input_;
  Ring results_;
  Ring pageable_;
  Ring pinned_;  // the same as pageable_ on a CPU
  std::unique_ptr<WorkQueue> compute_;
  std::unique_ptr<WorkQueue> copier_;
};

using OverlapDevices = std::vector<std::unique_ptr<OverlapDevice>>;

// The devices' names in tables and traces: "cuda:1". A device that is listed more than once is named with its
// place in the list: "cpu:0", "cuda:0/1".
std::vector<std::string> device_names(const std::vector<torch::Device>& devices);

// The cores for the copies of device `index`: those that no device computes on, or else the next device's.
std::vector<int> copier_cores(const std::vector<int>& allowed, int index, int devices, int threads);

// Returns true if the copies use cores on which the device itself computes.
bool copier_shares_cores(const std::vector<int>& allowed, int index, int devices, int threads);

OverlapDevices make_overlap_devices(const std::vector<torch::Device>& devices, int threads, int64_t size,
                                    uint64_t seed);

// Bytes of a device's input and results, and of their copies on the host.
int64_t overlap_device_bytes(int64_t size);
int64_t overlap_copies_bytes(int64_t size, torch::Device device);

}  // namespace lockstep
