// Runs lockstep's CPU kernels on the threads that torch's operations use.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Runs body(0), ..., body(parts - 1), each once, and returns when all are done. Part i runs on thread i
// modulo the number of the calling thread's OpenMP threads, at::get_num_threads(). With at most that many
// parts, each part has its own thread. torch's operations use the same threads. (at::parallel_for would run
// on one thread in a program that is compiled without OpenMP.) body must not throw and must not call torch:
// torch's thread-local state, such as the gradient mode, is only set in the calling thread.
void parallel_parts(int64_t parts, const std::function<void(int64_t part)>& body);

// The first of `count` items in part `part` of `parts`, whose sizes differ by one at most.
inline int64_t part_begin(int64_t count, int64_t part, int64_t parts) { return part * count / parts; }

// Cuts 0, ..., count - 1 into `parts` consecutive ranges whose sizes differ by at most one, and runs
// body(first, last, part) for each range [first, last) that is not empty, as parallel_parts() does. The
// ranges depend only on `count` and `parts`, so sums per range, added in order, are bitwise reproducible.
void parallel_ranges(int64_t count, int64_t parts,
                     const std::function<void(int64_t first, int64_t last, int64_t part)>& body);

}  // namespace lockstep
