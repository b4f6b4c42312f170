// A hook that sums the buckets of gradients in a way of its own, as register_comm_hook() of PyTorch's
// DistributedDataParallel. GradientSyncOptions::hook takes it.
//
//   options.hook = [](Endpoint& endpoint, const GradientBucket& bucket) {
//     return endpoint.allreduce_gradients(bucket.gradients);  // as without a hook
//   };
//   options.hook = [](Endpoint& endpoint, const GradientBucket& bucket) {  // then something after the sum
//     return endpoint.allreduce_gradients(bucket.gradients).then([bucket] { bucket.gradients.clamp_(-1, 1);
//     });
//   };
#pragma once

#include <torch/types.h>

#include <functional>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// A part of a replica's gradients that is summed as one. Valid during the call alone: copy it to keep it.
struct GradientBucket {
  // (n), contiguous, on the endpoint's device, of the parameters' dtype (a complex element is two numbers):
  // this replica's gradients. The hook's work changes them in place, and GradientSync::wait() leaves the
  // result in the parameters' .grad. A part of GradientSync::flat_gradients(), gaps between parameters
  // included; what is written into gaps is dropped.
  torch::Tensor gradients;
  int index = 0;  // of the bucket, 0 .. count - 1
  int count = 1;  // number of buckets, the same in every step and on every replica
};

// Called instead of Endpoint::allreduce_gradients(), in worlds of one replica too: once per bucket and step,
// in the order of `index`, in the replica's thread, without autograd. In overlapped mode that is during
// backward, when the bucket is complete; else in GradientSync::wait() or allreduce_all(), as after a captured
// GPU step. It returns work that GradientSync waits for in the same order, at the latest in wait() or
// allreduce_all().
//
// It must promise that it makes the same calls on every replica, whatever the gradients are, and leaves the
// same numbers on all of them, or the replicas drift apart. It touches the gradients only before it posts a
// collective of them and in Work::then(), where it may also post and wait for more collectives. On a GPU the
// gradients are complete on the current stream, and it queues its own work there, without waiting for the
// device. Each replica calls a copy of the hook: what the copies share must be thread-safe.
//
// An exception of the hook, or of its work, is thrown by backward() or wait(), and ends the collectives of
// all replicas of this process with it.
using BucketHook = std::function<Work(Endpoint& endpoint, const GradientBucket& bucket)>;

// Rounds float gradients to bfloat16 before they are summed, so that half as many bytes travel, between GPUs
// over NCCL as well. (CommunicatorOptions::compress is more exact, but compresses between processes over
// Gloo alone.) Sums are added and returned in bfloat16: with n replicas the error of a sum is at most about
// n u (|x_0| + ... + |x_n-1|), where x_i is replica i's gradient and u is 2^-8. All replicas of one device
// type get the same bits. With one replica nothing is rounded. Throws UsageError, as hooks do, for gradients
// that are not float.
BucketHook bf16_hook();

}  // namespace lockstep
