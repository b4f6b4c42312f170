// Which processor cores this process may use, and which of them a thread keeps to.
#pragma once

#include <vector>

namespace lockstep {

// Core numbers the process is allowed to run on, ascending; never empty.
std::vector<int> allowed_cores();

// Cores for worker `worker` of `workers` with `threads` threads each: disjoint slices of `allowed` while they
// last. When there are fewer cores than threads in all, no worker is tied to a core: the result is `allowed`
// for each.
std::vector<int> cores_for_worker(const std::vector<int>& allowed, int worker, int workers, int threads);

// Threads of each of `replicas` replicas when nobody says otherwise: the cores shared out, at least one.
int default_threads(int replicas);

// Keeps the calling thread, and the threads it starts from now on, to these cores. What the system refuses is
// ignored: this is for speed alone.
void keep_to_cores(const std::vector<int>& cores);

}  // namespace lockstep
