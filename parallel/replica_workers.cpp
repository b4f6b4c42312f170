#include <lockstep/parallel/replica_workers.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/recompute/refusal.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/parallel/threads/replica_thread.h>
#include <lockstep/parallel/threads/worker_pool.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>
#include <lockstep/support/start_thread.h>
#include <lockstep/support/vector_math.h>

namespace lockstep {
namespace {

// torch has a pool of 32 streams per GPU and hands them out in rotation. A replica takes two: its own and its
// communication thread's. Replicas that shared a stream would capture each other's collectives.
constexpr int kReplicasOnGpu = 16;

void require_own_streams(const std::vector<torch::Device>& devices) {
  for (const auto& device : devices) {
    const auto times = std::count(devices.begin(), devices.end(), device);
    if (device.is_cpu() || times <= kReplicasOnGpu) continue;
    throw UsageError(fmt::format("{} is listed {} times but has streams for only {} replicas", device.str(),
                                 times, kReplicasOnGpu),
                     fmt::format("list a GPU at most {} times", kReplicasOnGpu));
  }
}

// Compares how many collectives the replicas of this process have posted when their task returns.
class ReturnedReplicas {
 public:
  explicit ReturnedReplicas(Communicator& communicator)
      : communicator_(communicator), posted_(static_cast<size_t>(communicator.local_size())) {
    for (auto& count : posted_) count = kRunning;
  }

  // Called in the replica's thread.
  void note(int local) { posted_[static_cast<size_t>(local)] = communicator_.endpoint(local).posted(); }

  // Ends the collectives of all if a replica waits for one that has returned. After another error replicas
  // may return early.
  void end_if_stuck() noexcept try {
    auto& endpoint = communicator_.endpoint(0);
    if (endpoint.error()) return;
    found_ = difference();
    if (found_) endpoint.abort(found_);
    if (endpoint.error() != found_) found_ = nullptr;  // another error has come first
  } catch (const std::exception&) {                    // out of memory: the next call may find it
  }

  // Throws if the replicas have not posted as many. Called when all have returned.
  void require_alike() {
    end_if_stuck();
    if (found_) std::rethrow_exception(found_);
  }

 private:
  static constexpr int64_t kRunning = -1;

  // A replica that has returned after fewer collectives than another one. Null: there is none.
  std::exception_ptr difference() {
    for (int left = 0; left < communicator_.local_size(); ++left) {
      const int64_t count = posted_[static_cast<size_t>(left)];
      for (int other = 0; count != kRunning && other < communicator_.local_size(); ++other) {
        const auto more = communicator_.endpoint(other).posted();
        if (more <= count) continue;
        return std::make_exception_ptr(
            UsageError(fmt::format("rank {} has returned after {}, but rank {} has called {}",
                                   communicator_.first_rank() + left, counted(count, "collective"),
                                   communicator_.first_rank() + other, more),
                       "all replicas make the same number of steps; one without rows calls allreduce_all()"));
      }
    }
    return nullptr;
  }

  Communicator& communicator_;
  std::vector<std::atomic<int64_t>> posted_;  // by replica; kRunning: its task has not returned
  std::exception_ptr found_;                  // used in the caller's thread
};

}  // namespace

ReplicaWorkers::ReplicaWorkers(std::vector<torch::Device> devices, std::optional<int> wanted)
    : devices_(std::move(devices)), streams_(devices_.size()) {
  const int threads = wanted.value_or(default_threads(std::max(1, size())));
  check_replica_threads(threads);
  require_own_streams(devices_);
  check_threads_available(size() *
                          (threads + 1));  // per replica: a worker, its helpers and a communication thread
  check_openmp_stacks(size() * (threads - 1));
  ReplicaRandom::prepare();
  choose_vector_kernels();
  pool_ = std::make_unique<WorkerPool>(size(), [&](int local) {
    streams_[static_cast<size_t>(local)] =
        set_up_replica_thread({.local = local, .devices = devices_, .threads = threads});
    thread_local std::optional<RecomputeRefused> refused;  // as long as the thread
    refused.emplace(refusal_on_shared_gpu(devices_, local));
    if (devices_[static_cast<size_t>(local)].is_cpu()) check_threads_started(threads);
  });
}

ReplicaWorkers::~ReplicaWorkers() = default;

// Marks the ends of what the caller has queued on its current streams.
ReplicaWorkers::Marks ReplicaWorkers::mark_callers_streams() const {
  Marks marks(devices_.size());
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!streams_[i]) continue;
    auto event = std::make_shared<c10::Event>(devices_[i].type());
    event->record(current_stream(devices_[i]));
    marks[i] = std::move(event);
  }
  return marks;
}

// Makes the work that this replica queues next start after the caller's mark. Called in the replica's thread,
// between two tasks: in the caller's thread the stream might be under capture, which CUDA refuses.
void ReplicaWorkers::follow_caller(const Marks& marks, int local) const {
  const auto i = static_cast<size_t>(local);
  if (marks[i]) marks[i]->block(*streams_[i]);
}

// Makes the work that the caller queues next start after what the replicas have queued. Call it while no task
// is in flight.
void ReplicaWorkers::lead_caller() {
  for (const auto& stream : streams_) {
    if (stream) order_after(current_stream(stream->device()), *stream);
  }
}

void ReplicaWorkers::run(const std::function<void(int local)>& task) {
  pool_->start([this, &task, marks = mark_callers_streams()](int local) {
    follow_caller(marks, local);
    task(local);
  });
  wait();
}

void ReplicaWorkers::run(Communicator& communicator,
                         const std::function<void(int local, Endpoint& endpoint)>& task) {
  ReturnedReplicas returned(communicator);
  start(communicator, [&](int local, Endpoint& endpoint) {
    task(local, endpoint);
    returned.note(local);
  });
  pool_->wait(0, [&] { returned.end_if_stuck(); });
  returned.require_alike();
  lead_caller();
}

void ReplicaWorkers::start(Communicator& communicator,
                           std::function<void(int local, Endpoint& endpoint)> task) {
  if (communicator.local_size() != size()) {
    throw UsageError(fmt::format("the workers are for {}, but the communicator for {} in this process",
                                 counted(size(), "replica"), counted(communicator.local_size(), "replica")),
                     "give both the same devices");
  }
  pool_->start([this, &communicator, task = std::move(task), marks = mark_callers_streams()](int local) {
    auto& endpoint = communicator.endpoint(local);
    try {
      follow_caller(marks, local);
      task(local, endpoint);
    } catch (...) {
      endpoint.abort(std::current_exception());
      throw;
    }
  });
}

void ReplicaWorkers::wait(int in_flight) {
  pool_->wait(in_flight);
  if (in_flight == 0) lead_caller();
}

void ReplicaWorkers::synchronize() {
  wait();
  for (const auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

}  // namespace lockstep
