// Set-up of a replica's threads: device, stream, cores, intra-op threads, autograd.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>
#include <span>

namespace lockstep {

// The calling thread's loops run on this many threads, whatever the variables of OpenMP say.
void set_intra_op_threads(int threads);

struct ReplicaThreadOptions {
  int local = 0;                         // index of the replica in this process
  std::span<const c10::Device> devices;  // of all local replicas
  int threads = 1;                       // intra-op threads of the replica's worker; they decide its cores
};

// Sets up the calling thread; call it once per thread. Backward passes run in the thread itself. On a CPU the
// thread is pinned to the replica's cores. On a GPU the device and a new stream become current; returns that
// stream. Returns nullopt on a CPU.
std::optional<c10::Stream> set_up_replica_thread(const ReplicaThreadOptions& options);

}  // namespace lockstep
