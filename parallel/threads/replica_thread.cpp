#include <lockstep/parallel/threads/replica_thread.h>

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/openmp_threads.h>

namespace lockstep {

void set_intra_op_threads(int threads) {
  at::get_num_threads();  // the first call in a thread sets the process-wide number; the next replaces it
  at::set_num_threads(threads);
  use_all_threads();
}

std::optional<c10::Stream> set_up_replica_thread(const ReplicaThreadOptions& options) {
  const auto device = options.devices[static_cast<size_t>(options.local)];
  // Backward runs in this thread: autograd has one thread per device, and replicas may share a device.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  set_intra_op_threads(options.threads);
  if (device.is_cpu()) {
    // Before the first parallel region, because the threads it starts inherit the cores.
    pin_to_cores(cores_for_worker(allowed_cores(), options.local, static_cast<int>(options.devices.size()),
                                  options.threads));
    return std::nullopt;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.setDevice(device);
  const auto stream = guard.getStreamFromGlobalPool(device);
  guard.exchangeStream(stream);
  return stream;
}

}  // namespace lockstep
