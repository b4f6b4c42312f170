// The threads that OpenMP, which computes the loops of torch and of lockstep's kernels, grants to a replica's
// thread.
#pragma once

namespace lockstep {

// The number of threads, at most `wanted`, that a replica may have. OMP_THREAD_LIMIT bounds it. That counts
// for each replica alone: a thread that the program has started has its own OpenMP threads.
int granted_threads(int wanted);

// Throws UsageError, with both numbers, for threads that no replica can have: fewer than one, or more than
// OpenMP grants.
void check_replica_threads(int threads);

// Gives loops of the calling thread all the threads that are set for it: OMP_DYNAMIC would leave some out
// while the machine is busy, and OMP_MAX_ACTIVE_LEVELS=0 all but one.
void use_all_threads();

// Starts the calling thread's OpenMP threads. Throws UsageError if there are fewer than `threads`: torch's
// convolutions wait for ever for one that is missing.
void check_threads_started(int threads);

// Throws UsageError if `count` threads cannot start with the stacks of OMP_STACKSIZE. Call it before OpenMP
// starts threads: it would end the process.
void check_openmp_stacks(int count);

}  // namespace lockstep
