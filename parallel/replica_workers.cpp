#include <lockstep/parallel/replica_workers.h>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_thread.h>
#include <lockstep/parallel/start_thread.h>
#include <lockstep/support/stream.h>

namespace lockstep {

ReplicaWorkers::ReplicaWorkers(std::vector<torch::Device> devices, int threads)
    : devices_(std::move(devices)), streams_(devices_.size()) {
  need_threads(size() * (threads + 1));  // workers and their helpers, and a thread each for communication
  pool_ = std::make_unique<WorkerPool>(size(), [&](int rank) {
    streams_[static_cast<size_t>(rank)] =
        set_up_replica_thread({.rank = rank, .devices = devices_, .threads = threads});
  });
}

// What the replicas do next starts after what the caller has queued.
void ReplicaWorkers::follow_caller() {
  for (const auto& stream : streams_) {
    if (stream) order_after(*stream, current_stream(stream->device()));
  }
}

// What the caller queues next starts after what the replicas have queued.
void ReplicaWorkers::lead_caller() {
  for (const auto& stream : streams_) {
    if (stream) order_after(current_stream(stream->device()), *stream);
  }
}

void ReplicaWorkers::run(const std::function<void(int rank)>& task) {
  follow_caller();
  pool_->run(task);
  lead_caller();
}

void ReplicaWorkers::run(Communicator& communicator,
                         const std::function<void(int rank, Endpoint& endpoint)>& task) {
  start(communicator, task);
  wait();
}

void ReplicaWorkers::start(Communicator& communicator,
                           std::function<void(int rank, Endpoint& endpoint)> task) {
  follow_caller();
  pool_->start([&communicator, task = std::move(task)](int rank) {
    auto& endpoint = communicator.endpoint(rank);
    try {
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
