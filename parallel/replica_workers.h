// One worker thread a replica, for the whole run: it knows its device, its stream, its cores and its number
// of threads.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/parallel/threads/worker_pool.h>

namespace lockstep {

class Communicator;
class Endpoint;

class ReplicaWorkers {
 public:
  // threads: intra-op threads of each replica, at least 1. Replicas on a CPU keep to cores of their own while
  // there are enough; replicas on a GPU each get a stream of their own, so that several on one GPU work at
  // the same time. UsageError for more than 16 replicas on one GPU, which has no streams for them.
  ReplicaWorkers(std::vector<torch::Device> devices, int threads);

  int size() const { return static_cast<int>(devices_.size()); }
  std::span<const torch::Device> devices() const { return devices_; }

  // Calls task(rank) in every replica's thread, on its device and stream, and returns when all have returned
  // (the first rank's exception is rethrown). On GPUs the order is kept without the host waiting: a task's
  // kernels start after whatever the caller has queued on its current streams, and what the caller queues
  // afterwards starts after them. (A task that reaches for another replica's GPU does so on that GPU's
  // default stream: the caller's current streams must be the default ones then.)
  void run(const std::function<void(int rank)>& task);

  // The same for a task that sums or shares something over the replicas: task(rank, endpoint of that rank). A
  // replica that fails takes the others out of the collectives in which they wait for it; its exception is
  // the one that is rethrown, and the communicator is of no use afterwards.
  void run(Communicator& communicator, const std::function<void(int rank, Endpoint& endpoint)>& task);

  // run() in two parts, for work that is to be queued before earlier work is done: start() returns at once,
  // and wait() when at most `under_way` tasks are still in the replicas' threads, the latest ones. wait()
  // throws what the others threw; run() waits for all, too. The communicator and what the task refers to
  // outlive it.
  void start(Communicator& communicator, std::function<void(int rank, Endpoint& endpoint)> task);
  void wait(int under_way = 0);

  // Waits until every replica's thread is done and its stream empty. For stopping a clock; nothing else needs
  // it.
  void synchronize();

 private:
  using Marks = std::vector<std::shared_ptr<const c10::Event>>;  // one a replica; null on a CPU

  Marks mark_callers_streams() const;
  void follow_caller(const Marks& marks, int rank) const;
  void lead_caller();

  std::vector<torch::Device> devices_;
  // One a replica; none on a CPU, whose work is done when it returns.
  std::vector<std::optional<c10::Stream>> streams_;
  std::unique_ptr<WorkerPool> pool_;
};

}  // namespace lockstep
