#include <lockstep/parallel/replica_workers.h>

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/parallel/cpu_cores.h>

namespace lockstep {
namespace {

// c10's device-independent streams and events: the same lines serve a build without CUDA.
c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Work queued on `later` from now on starts after what is queued on `earlier` now. Nothing waits on the host.
void order_after(const c10::Stream& later, const c10::Stream& earlier) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace

ReplicaWorkers::ReplicaWorkers(std::vector<torch::Device> devices, int threads)
    : devices_(std::move(devices)), streams_(devices_.size()) {
  pool_ = std::make_unique<WorkerPool>(size(), [&](int rank) { set_up_thread(rank, threads); });
}

void ReplicaWorkers::set_up_thread(int rank, int threads) {
  const auto device = devices_[static_cast<size_t>(rank)];
  // Backward runs in this thread alone: a replica has one device, and several replicas may share that device.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  at::get_num_threads();  // the first call in a thread takes over the process-wide number; then ours
  at::set_num_threads(threads);
  if (device.is_cpu()) {
    // Before the first parallel region: the threads it starts inherit the cores.
    keep_to_cores(cores_for_worker(allowed_cores(), rank, size(), threads));
    return;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.setDevice(device);
  const auto stream = guard.getStreamFromGlobalPool(device);
  guard.exchangeStream(stream);
  streams_[static_cast<size_t>(rank)] = stream;
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

void ReplicaWorkers::synchronize() {
  for (const auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

}  // namespace lockstep
