// Devices that hand tensors to each other, with a count of what they hand over: what the ways to partition a
// network are made of.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <lockstep/parallel/replica_workers.h>

namespace lockstep {

struct Traffic {
  int64_t bytes = 0;  // that were read out of another device's memory, over all devices
  // Times that a device went on with what another had just computed: one a hand-over between two devices, one
  // a collective of all.
  int64_t meetings = 0;
};

// One thread a device, with cores (or a stream) of its own. A rank is a device's place in the list; a device
// may be listed more than once, and each mention has memory of its own as far as the mesh is concerned.
//
// send() to sum_own() are called in the thread of the rank that they name first, within run(). What is handed
// over is not written to afterwards. On GPUs they queue work on the thread's current stream, ordered by
// events; the host waits only until the other has queued its part.
class Mesh {
 public:
  // threads: intra-op threads of each device's worker.
  Mesh(std::vector<torch::Device> devices, int threads);

  int size() const { return workers_.size(); }
  std::span<const torch::Device> devices() const { return workers_.devices(); }
  torch::Device device(int rank) const { return workers_.devices()[static_cast<size_t>(rank)]; }
  int threads() const { return threads_; }

  // Calls task(rank) in every device's thread and returns when all have returned. When one throws, the others
  // stop waiting and the error is thrown here; the next run() starts afresh.
  void run(const std::function<void(int rank)>& task);

  // Waits until every device has done what was queued.
  void synchronize() { workers_.synchronize(); }
  // In the rank's thread: waits until its own device has.
  void synchronize(int rank);

  // Hands a tensor over and returns at once.
  void send(int from, int to, const torch::Tensor& tensor);
  // The next tensor that `from` has sent here, copied into this device's memory: strides are kept. Waits for
  // it. Throws what ended the run.
  torch::Tensor receive(int to, int from);

  // Collectives: all ranks call them in the same order. sizes (one a rank): what each rank has of dimension
  // 1.
  //
  // own (n, sizes[rank], ...): returns all ranks' in order, (n, sum of sizes, ...), on this device.
  torch::Tensor gather(int rank, const torch::Tensor& own, std::span<const int64_t> sizes);
  // partial (n, sum of sizes, ...) on every rank: returns this rank's part of their sum, (n, sizes[rank],
  // ...), added in the order of ranks.
  torch::Tensor sum_own(int rank, const torch::Tensor& partial, std::span<const int64_t> sizes);

  // For what moves by other means than the above.
  void count(const Traffic& traffic);
  // All since the last call.
  Traffic take_traffic();

 private:
  struct Parcel {
    torch::Tensor tensor;
    std::shared_ptr<c10::Event> ready;  // null where the tensor is on a CPU
  };

  // Ends the run under way with this error, for those who wait and who will.
  void abort(std::exception_ptr error);
  Parcel take(int to, int from);
  void post_to_others(int rank, const torch::Tensor& tensor);
  std::deque<Parcel>& track(int from, int to) { return tracks_[static_cast<size_t>(from * size() + to)]; }

  ReplicaWorkers workers_;
  const int threads_;
  std::mutex mutex_;
  std::vector<std::condition_variable> arrived_;  // one a receiver
  std::vector<std::deque<Parcel>> tracks_;        // from x to
  std::exception_ptr error_;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<int64_t> meetings_ = 0;
};

}  // namespace lockstep
