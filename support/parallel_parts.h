// Our own kernels on the threads that torch's operations have.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Runs body(0), ..., body(parts - 1), each once, and returns when all are done. The parts are dealt in turn
// to the threads of OpenMP that the calling thread has (at::get_num_threads() of them), whose pool is the one
// that torch's operations use there: with as many parts as threads or fewer, each part has a thread of its
// own. (at::parallel_for of a program that is itself compiled without OpenMP would run on one thread.) body
// must not throw and not call torch: what torch keeps for each thread, such as whether gradients are wanted,
// is the caller's alone.
void parallel_parts(int64_t parts, const std::function<void(int64_t part)>& body);

// The first of `count` items in part `part` of `parts`, whose sizes differ by one at most.
inline int64_t part_begin(int64_t count, int64_t part, int64_t parts) { return part * count / parts; }

// Cuts 0, ..., count - 1 into `parts` ranges, in their order and of sizes that differ by one at most, and
// runs body(first, last, part) for each that is not empty, as parallel_parts() does: it has first, ..., last
// - 1. A part's range depends on the numbers given alone, so that sums of the ranges, added in their order,
// have the same bits again.
void parallel_ranges(int64_t count, int64_t parts,
                     const std::function<void(int64_t first, int64_t last, int64_t part)>& body);

}  // namespace lockstep
