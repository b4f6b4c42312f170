// A device of `bench overlap`: products of a matrix with itself, and copies of them.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/work_queue.h>

namespace lockstep {

// Where on the host a GPU's results go: pinned memory is what it can write while the host does other things.
// A processor's results go to plain memory, whatever is asked for.
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

// Two queues of work, one for products and one for copies: streams of a GPU, or threads on different cores.
// The results lie in a ring of kSlots matrices, and so do their copies: the i-th product is written over the
// (i - kSlots)-th. All of it is touched before any clock starts, so that no figure counts the time in which
// the system first finds memory for it.
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

  void queue_product(int64_t i);
  // The i-th result to the host, so many times over, as work of this queue of the device's.
  void queue_copy(WorkQueue& queue, int64_t i, HostMemory memory, int times);
  // Another device's i-th result into the place of this one's, by the queue that computes: on a processor its
  // own cores.
  void queue_receive(const OverlapDevice& from, int64_t i);

  // Fills all results and copies with NaN, so that what is not written afterwards shows.
  void spoil();

  // Slots whose result is not the product (as `expected` has it, within rounding), whose copy is not the
  // result's own bits, or whose result is not another device's own bits. Of the first `slots`.
  int64_t wrong_products(const torch::Tensor& expected, int64_t slots = kSlots) const;
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
  Ring pinned_;  // the same as pageable_ on a processor
  std::unique_ptr<WorkQueue> compute_;
  std::unique_ptr<WorkQueue> copier_;
};

using OverlapDevices = std::vector<std::unique_ptr<OverlapDevice>>;

// Their names in tables and traces: "cuda:1"; by place in the list where a device stands there twice, "cpu:0"
// or "cuda:0/1".
std::vector<std::string> device_names(const std::vector<torch::Device>& devices);

// Cores for the copies of device `index` of so many: those on which nothing is computed, or else the next
// device's.
std::vector<int> copier_cores(const std::vector<int>& allowed, int index, int devices, int threads);

// Whether these are cores on which the device itself computes.
bool copier_shares_cores(const std::vector<int>& allowed, int index, int devices, int threads);

OverlapDevices make_overlap_devices(const std::vector<torch::Device>& devices, int threads, int64_t size,
                                    uint64_t seed);

// Bytes of a device's input and results, and of their copies on the host.
int64_t overlap_device_bytes(int64_t size);
int64_t overlap_copies_bytes(int64_t size, torch::Device device);

}  // namespace lockstep
