// What a program's main thread does for its replicas: it keeps out of their way.
#pragma once

namespace lockstep {

// For the thread that drives a Trainer or ReplicaWorkers, before it computes anything: from now on it
// computes alone. The helpers that OpenMP would keep for it count as busy although they sleep, and where
// there are more threads than cores libgomp no longer lets the replicas' threads stay awake from one loop to
// the next: a step of LeNet on two threads takes a tenth longer. Process-wide for threads that have not
// computed yet; replicas set a number of their own.
void leave_cores_to_replicas();

}  // namespace lockstep
