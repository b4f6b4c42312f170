// A device of `bench overlap`: it multiplies a matrix by itself and copies the results to the host.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/queues/task_graph.h>

namespace lockstep {

// The host memory for a GPU's results. A GPU can write pinned memory while the host does other work. A CPU's
// results always go to plain memory.
enum class HostMemory { kPageable, kPinned };

// The devices of one run. A CPU device has `threads` threads.
struct OverlapList {
  std::vector<torch::Device> devices;
  int threads = 1;
};

// Two queues, one for matmuls and one for copies: streams of a GPU, or threads on different cores. Results
// and copies lie in rings of kSlots matrices: the i-th result overwrites the (i - kSlots)-th. All memory is
// touched before anything is timed, so that no figure includes page faults.
class OverlapDevice {
 public:
  static constexpr int64_t kSlots = 4;

  // rank: the device's place in the list. size: rows and columns of a matrix.
  OverlapDevice(const OverlapList& list, int rank, int64_t size, uint64_t seed);

  torch::Device device() const { return compute_.device(); }
  const std::string& name() const { return name_; }  // "cpu:1"
  int64_t result_bytes() const { return matrix_bytes(size_, 1); }
  const torch::Tensor& input() const { return input_; }  // (size, size) float, uniform in [0, 1)

  WorkQueue& compute() { return compute_; }
  WorkQueue& copier() { return copier_; }

  // Add a task to a graph, and return it. The i-th matmul; a copy of its result to the host, `times` times,
  // in this queue of the device; a copy of another device's i-th result over this device's, in the compute
  // queue.
  using Tasks = std::vector<TaskGraph::Task>;
  TaskGraph::Task add_matmul(TaskGraph& graph, int64_t i, const Tasks& after = {});
  TaskGraph::Task add_copy(TaskGraph& graph, WorkQueue& queue, int64_t i, HostMemory memory, int times,
                           const Tasks& after = {});
  TaskGraph::Task add_receive(TaskGraph& graph, const OverlapDevice& from, int64_t i);

  // Fills all results and copies with NaN, to reveal what is not written afterwards.
  void fill_with_nan();

  // The result of a matmul as plain torch computes it, on the host.
  torch::Tensor expected_result() const;

  // How many of the first `slots` slots have a result that differs from `expected` by more than rounding, a
  // copy with other bits than the result, or other bits than another device's result.
  int64_t wrong_results(const torch::Tensor& expected, int64_t slots = kSlots) const;
  int64_t wrong_copies(HostMemory memory, int64_t slots = kSlots) const;
  int64_t differing_results(const OverlapDevice& other, int64_t slots = kSlots) const;

 private:
  using Ring = std::array<torch::Tensor, kSlots>;  // (size, size) float
  static size_t slot(int64_t i) { return static_cast<size_t>(i % kSlots); }
  const Ring& host(HostMemory memory) const { return memory == HostMemory::kPinned ? pinned_ : pageable_; }

  const std::string name_;
  const int64_t size_;
  torch::Tensor input_;
  Ring results_;
  Ring pageable_;
  Ring pinned_;  // the same as pageable_ on a CPU
  WorkQueue compute_;
  WorkQueue copier_;
};

// Experiments take some of the devices.
using OverlapDevices = std::vector<std::shared_ptr<OverlapDevice>>;

OverlapDevices make_overlap_devices(const OverlapList& list, int64_t size, uint64_t seed);

// The devices' names in tables and traces: "cuda:1". A device that is listed more than once is named with its
// place in the list: "cpu:0", "cuda:0/1".
std::vector<std::string> device_names(const std::vector<torch::Device>& devices);

// The cores for the copies of device `index`: those that no device computes on, or else the next device's.
std::vector<int> copier_cores(const std::vector<int>& allowed, int index, int devices, int threads);

// Returns true if the copies use cores on which the device itself computes.
bool copier_shares_cores(const std::vector<int>& allowed, int index, int devices, int threads);

// Bytes of a device's input and results, and of their copies on the host.
int64_t overlap_device_bytes(int64_t size);
int64_t overlap_copies_bytes(int64_t size, torch::Device device);

}  // namespace lockstep
