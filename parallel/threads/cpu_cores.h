// CPU cores: which this process may use, and which a thread is pinned to.
#pragma once

#include <vector>

namespace lockstep {

// The numbers of the cores that the calling thread may run on, ascending; never empty.
std::vector<int> allowed_cores();

// The cores of worker `worker` of `workers`, which have `threads` threads each: disjoint slices of `allowed`.
// With fewer cores than threads in all, every worker gets all of `allowed`.
std::vector<int> cores_for_worker(const std::vector<int>& allowed, int worker, int workers, int threads);

// The default number of threads per replica: the allowed cores divided by `replicas`, at least one.
int default_threads(int replicas);

// Pins the calling thread, and the threads it starts from now on, to these cores. Ignores errors: pinning
// only affects speed.
void pin_to_cores(const std::vector<int>& cores);

}  // namespace lockstep
