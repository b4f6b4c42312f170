// One worker thread per replica of this process, for the whole run. It has its own device, stream, cores and
// number of threads. run(), start(), wait() and synchronize() throw UsageError in such a thread: a task that
// calls them would wait for itself.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class Communicator;
class Endpoint;
class WorkerPool;

class ReplicaWorkers {
 public:
  // threads: intra-op threads of each replica, at least 1. Empty: the cores that the calling thread may use
  // divided by the replicas, at least 1, and at most what OpenMP grants. Each replica on a CPU gets its own
  // cores while there are enough. Each replica on a GPU gets its own stream, so that several on one GPU work
  // at the same time. Throws UsageError for threads below 1 or above what OpenMP grants (OMP_THREAD_LIMIT),
  // for threads that OpenMP cannot start, and for more than 16 replicas on one GPU, which has no streams for
  // them.
  explicit ReplicaWorkers(std::vector<torch::Device> devices, std::optional<int> threads = std::nullopt);
  ~ReplicaWorkers();  // waits for the tasks in flight

  int size() const { return static_cast<int>(devices_.size()); }
  std::span<const torch::Device> devices() const { return devices_; }

  // Calls task(local) in every replica's thread, on its device and stream; local: the replica's index in this
  // process, 0 .. size() - 1. Returns when all have returned, and rethrows the exception of the
  // lowest-numbered replica that failed. On GPUs the host does not wait: a task's kernels start after what
  // the caller has queued on its current streams, and what the caller queues afterwards starts after them. (A
  // task uses the default stream of another replica's GPU. If it does so, the caller's current streams must
  // be the default ones.)
  void run(const std::function<void(int local)>& task);

  // The same for a task with collectives: task(local, that replica's endpoint). endpoint.rank() is the
  // replica's rank in the world, over all processes. Throws UsageError unless the communicator's local_size()
  // is size(). When a replica fails, the others leave the collectives in which they wait for it, and the
  // first failed replica's exception is rethrown. The communicator cannot be used afterwards. All replicas
  // must post the same number of collectives: when one returns after fewer than another one of this process,
  // all fail with a UsageError, since the other one would wait for ever. (start() does not check that.)
  void run(Communicator& communicator, const std::function<void(int local, Endpoint& endpoint)>& task);

  // run() in two parts, for queueing work before earlier work is done. start() returns at once. wait()
  // returns when at most `in_flight` of the latest tasks are still in the replicas' threads, and throws what
  // the others threw. run() waits for earlier tasks, too. The communicator, and what the task refers to, must
  // outlive the task.
  void start(Communicator& communicator, std::function<void(int local, Endpoint& endpoint)> task);
  void wait(int in_flight = 0);

  // Waits until every replica's thread is done and its stream is empty. Needed only for measuring time.
  void synchronize();

 private:
  using Marks = std::vector<std::shared_ptr<const c10::Event>>;  // one per replica; null on a CPU

  Marks mark_callers_streams() const;
  void follow_caller(const Marks& marks, int local) const;
  void lead_caller();

  std::vector<torch::Device> devices_;
  // One per replica. Empty on a CPU, where work is done when the call returns.
  std::vector<std::optional<c10::Stream>> streams_;
  std::unique_ptr<WorkerPool> pool_;
};

}  // namespace lockstep
