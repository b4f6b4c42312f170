// What every thread that works for a replica sets up once: device, stream, cores, threads, autograd.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <span>

namespace lockstep {

struct ReplicaThread {
  int rank = 0;
  std::span<const torch::Device> devices;  // of all local replicas
  int threads = 1;  // intra-op threads that the replica's worker has; they decide its cores
};

// For the calling thread, once: autograd runs in it alone; on a CPU it keeps to the replica's cores; on a GPU
// the device and a new stream of the thread's own become current. Returns that stream; none on a CPU, whose
// work is done when it returns.
std::optional<c10::Stream> set_up_replica_thread(const ReplicaThread& thread);

}  // namespace lockstep
