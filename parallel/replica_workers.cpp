#include <lockstep/parallel/replica_workers.h>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_thread.h>
#include <lockstep/support/stream.h>

namespace lockstep {

ReplicaWorkers::ReplicaWorkers(std::vector<torch::Device> devices, int threads)
    : devices_(std::move(devices)), streams_(devices_.size()) {
  pool_ = std::make_unique<WorkerPool>(size(), [&](int rank) {
    streams_[static_cast<size_t>(rank)] =
        set_up_replica_thread({.rank = rank, .devices = devices_, .threads = threads});
  });
}

void ReplicaWorkers::run(const std::function<void(int rank)>& task) {
  for (const auto& stream : streams_) {
    if (stream) order_after(*stream, current_stream(stream->device()));
  }
  pool_->run(task);
  for (const auto& stream : streams_) {
    if (stream) order_after(current_stream(stream->device()), *stream);
  }
}

void ReplicaWorkers::run(Communicator& communicator,
                         const std::function<void(int rank, Endpoint& endpoint)>& task) {
  run([&](int rank) {
    auto& endpoint = communicator.endpoint(rank);
    try {
      task(rank, endpoint);
    } catch (...) {
      endpoint.abort(std::current_exception());
      throw;
    }
  });
}

void ReplicaWorkers::synchronize() {
  for (const auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

}  // namespace lockstep
