#include <lockstep/parallel/replica_workers.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/threads/replica_thread.h>
#include <lockstep/parallel/threads/start_thread.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stream.h>

namespace lockstep {
namespace {

// torch hands out 32 streams of a GPU, in turn, and a replica takes two, its own and its communication
// thread's. Two that were the same could not be captured: one's collectives would be in the other's graph.
constexpr int kReplicasOnGpu = 16;

void require_own_streams(const std::vector<torch::Device>& devices) {
  for (const auto& device : devices) {
    const auto times = std::count(devices.begin(), devices.end(), device);
    if (device.is_cpu() || times <= kReplicasOnGpu) continue;
    throw UsageError(fmt::format("{} is listed {} times, and has streams for {} replicas", device.str(),
                                 times, kReplicasOnGpu),
                     fmt::format("list a GPU at most {} times", kReplicasOnGpu));
  }
}

}  // namespace

ReplicaWorkers::ReplicaWorkers(std::vector<torch::Device> devices, int threads)
    : devices_(std::move(devices)), streams_(devices_.size()) {
  require_own_streams(devices_);
  need_threads(size() * (threads + 1));  // workers and their helpers, and a thread each for communication
  pool_ = std::make_unique<WorkerPool>(size(), [&](int rank) {
    streams_[static_cast<size_t>(rank)] =
        set_up_replica_thread({.rank = rank, .devices = devices_, .threads = threads});
  });
}

// How far the caller has queued on its current streams.
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

// What this replica does next starts after the mark. In the replica's thread, between two tasks: in the
// caller's it could be while the stream is being captured, which CUDA refuses.
void ReplicaWorkers::follow_caller(const Marks& marks, int rank) const {
  const auto i = static_cast<size_t>(rank);
  if (marks[i]) marks[i]->block(*streams_[i]);
}

// What the caller queues next starts after what the replicas have queued. Only while no task is under way.
void ReplicaWorkers::lead_caller() {
  for (const auto& stream : streams_) {
    if (stream) order_after(current_stream(stream->device()), *stream);
  }
}

void ReplicaWorkers::run(const std::function<void(int rank)>& task) {
  pool_->start([this, &task, marks = mark_callers_streams()](int rank) {
    follow_caller(marks, rank);
    task(rank);
  });
  wait();
}

void ReplicaWorkers::run(Communicator& communicator,
                         const std::function<void(int rank, Endpoint& endpoint)>& task) {
  start(communicator, task);
  wait();
}

void ReplicaWorkers::start(Communicator& communicator,
                           std::function<void(int rank, Endpoint& endpoint)> task) {
  pool_->start([this, &communicator, task = std::move(task), marks = mark_callers_streams()](int rank) {
    auto& endpoint = communicator.endpoint(rank);
    try {
      follow_caller(marks, rank);
      task(rank, endpoint);
    } catch (...) {
      endpoint.abort(std::current_exception());
      throw;
    }
  });
}

void ReplicaWorkers::wait(int under_way) {
  pool_->wait(under_way);
  if (under_way == 0) lead_caller();
}

void ReplicaWorkers::synchronize() {
  wait();
  for (const auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

}  // namespace lockstep
