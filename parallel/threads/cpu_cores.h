// CPU cores: which this process may use, and which a thread is pinned to.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// The numbers of the cores that the calling thread may run on, ascending; never empty.
std::vector<int> allowed_cores();

// The cores of worker `worker` of `workers`, which have `threads` threads each: disjoint slices of `allowed`.
// With fewer cores than threads in all, every worker gets all of `allowed`.
std::vector<int> cores_for_worker(const std::vector<int>& allowed, int worker, int workers, int threads);

// Divides cores among processes by their number of replicas. Returns those of process `own`: at least one,
// and none of another process if there is a core for each replica.
std::vector<int> share_of_cores(const std::vector<int>& cores, std::span<const size_t> replicas, size_t own);

// The facts that a process states about itself, so that processes that may run on the same cores can divide
// them.
struct CoreUser {
  std::string machine = {};
  std::vector<int> cores = {};  // allowed_cores()
  size_t replicas = 1;
};

// Pins the calling thread to its share of the cores. Does nothing if no other process of its machine has the
// same cores. users: by process.
void pin_to_share(const std::vector<CoreUser>& users, size_t own);

// The default number of threads per replica: the allowed cores divided by `replicas`, at least one, and at
// most what OpenMP grants.
int default_threads(int replicas);

// Pins the calling thread, and the threads it starts from now on, to these cores. Ignores errors: pinning
// only affects speed.
void pin_to_cores(const std::vector<int>& cores);

}  // namespace lockstep
