// Devices that exchange tensors and count the traffic. The schemes that partition a network are built on it.
// Its threads are the library's. Its exchanges are its own: an Endpoint (parallel/communicator.h) neither
// sends to one rank nor shares out a sum, and its ranks give tensors of one size.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>

namespace lockstep {

struct Traffic {
  int64_t bytes = 0;  // read from another device's memory, summed over all devices
  // How often a device needed what another had just computed: one per transfer between two devices, one per
  // collective.
  int64_t synchronisations = 0;
};

// One thread per device, with its own cores or stream. A rank is a device's place in the list. Listing a
// device twice creates two ranks on it; the mesh treats their memory as separate.
//
// send(), receive(), gather() and sum_own() are called within run(), in the thread of the rank that is their
// first argument. The caller does not write to a tensor it has sent. On GPUs they queue work on the thread's
// current stream, ordered by events; the host waits only until the other rank has queued its part.
class Mesh {
 public:
  // threads: intra-op threads per device.
  Mesh(std::vector<torch::Device> devices, int threads);

  int size() const { return workers_.size(); }
  std::span<const torch::Device> devices() const { return workers_.devices(); }
  torch::Device device(int rank) const { return workers_.devices()[static_cast<size_t>(rank)]; }
  int threads() const { return threads_; }

  // Calls task(rank) in every device's thread and returns when all have returned. If one throws, the others
  // stop waiting and run() throws its error. The next run() starts afresh.
  void run(const std::function<void(int rank)>& task);

  // Waits until every device has finished its queued work.
  void synchronize() { workers_.synchronize(); }
  // Called in the rank's thread: waits for its own device alone.
  void synchronize(int rank);

  // Sends a tensor and returns at once.
  void send(int from, int to, const torch::Tensor& tensor);
  // Waits for the next tensor that `from` sent to `to`, and returns a copy in this device's memory with the
  // same strides. Throws the error that ended the run, if any.
  torch::Tensor receive(int to, int from);

  // Collectives: all ranks call them in the same order. sizes[r]: rank r's part of dimension 1.
  //
  // own (n, sizes[rank], ...): returns all ranks' parts in order, (n, sum of sizes, ...), on this device.
  torch::Tensor gather(int rank, const torch::Tensor& own, std::span<const int64_t> sizes);
  // partial (n, sum of sizes, ...): adds all ranks' tensors in the order of ranks and returns this rank's
  // part of the sum, (n, sizes[rank], ...).
  torch::Tensor sum_own(int rank, const torch::Tensor& partial, std::span<const int64_t> sizes);

  // Adds traffic that does not pass through the functions above.
  void count(const Traffic& traffic);
  // Returns the traffic since the last call.
  Traffic take_traffic();

 private:
  struct Parcel {
    torch::Tensor tensor;
    Work::Done ready;
  };

  // Ends the current run: whoever waits now or later in it throws this error.
  void abort(std::exception_ptr error);
  // The sender's tensor, when it may be read.
  torch::Tensor take(int to, int from);
  // A collective: calls read(other, tensor) with every rank's tensor, in the order of ranks. It returns what
  // it has read.
  void exchange(int rank, const torch::Tensor& own,
                const std::function<torch::Tensor(int other, const torch::Tensor& theirs)>& read);
  std::deque<Parcel>& track(int from, int to) { return tracks_[static_cast<size_t>(from * size() + to)]; }

  ReplicaWorkers workers_;
  const int threads_;
  std::mutex mutex_;
  std::vector<std::condition_variable> arrived_;  // one per receiver
  std::vector<std::deque<Parcel>> tracks_;        // by sender and receiver
  std::exception_ptr error_;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<int64_t> synchronisations_ = 0;
};

}  // namespace lockstep
