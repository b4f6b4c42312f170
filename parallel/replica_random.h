// Random numbers of its own for each replica and step. Torch's CPU operations draw from one generator of the
// process, so what a replica gets would depend on the order in which the replicas' threads come.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace lockstep {

// Returns a new CPU generator for one rank in one step: a resumed run needs no more than these numbers. Its
// seed is the first draw of SplitMix64(seed, {3, step, rank}), of which torch's generator takes the lower 32
// bits. In Python, modulo 2^64, with mix64 and GAMMA of data/batch_order.h:
//   state = mix64(mix64(mix64(mix64(seed + GAMMA) + 3) + step) + rank)
//   torch.Generator().manual_seed(mix64(state + GAMMA))
at::Generator replica_generator(uint64_t seed, int64_t step, int rank);

// While one lives, torch's operations on CPU tensors in this thread draw from its generator, those of
// backward passes in a replica's thread, too:
//
//   for (int64_t step = 0; ...) {
//     const ReplicaRandom random(seed, step, endpoint.rank());
//     net(X) ...  // torch::nn::Dropout drops what (seed, step, rank) says
//
// Unmodified modules obey it. An operation that is given a generator uses that one. Torch's default generator
// is not touched. Other threads are not concerned, such as a DataLoader's workers. Operations on a GPU, also
// with a seed on the host, draw from that GPU's default generator, which its replicas share. May be nested;
// the innermost counts. torch::manual_seed() does not change it, and a backward pass within backward passes,
// 60 deep and more, draws from torch's default generator: autograd moves it to another thread. Destroy it in
// the thread that constructed it.
class ReplicaRandom {
 public:
  ReplicaRandom(uint64_t seed, int64_t step, int rank) : ReplicaRandom(replica_generator(seed, step, rank)) {}
  explicit ReplicaRandom(at::Generator generator);  // for a stream of numbers that goes on later
  ~ReplicaRandom();
  ReplicaRandom(const ReplicaRandom&) = delete;
  ReplicaRandom& operator=(const ReplicaRandom&) = delete;

  // Prepares torch's dispatcher, once per process. The constructor of ReplicaWorkers calls it, before other
  // threads compute.
  static void prepare();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
  at::Generator outer_;  // the thread drew from it before
};

}  // namespace lockstep
