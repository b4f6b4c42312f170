// Set-up of the main thread of a program that trains.
#pragma once

namespace lockstep {

// Makes the calling thread compute without helper threads. Call it in the thread that drives a Trainer or
// ReplicaWorkers, before any computation. OpenMP counts helper threads as busy even while they sleep. With
// more threads than cores, libgomp then puts the replicas' threads to sleep between loops, and a step of
// LeNet on two threads takes a tenth longer. Affects all threads of the process that have not computed yet;
// replicas set their own number of threads.
void leave_cores_to_replicas();

}  // namespace lockstep
