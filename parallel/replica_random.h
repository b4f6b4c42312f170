// Random numbers of its own for each replica and step. Torch's CPU operations draw from one generator of the
// process, so what a replica gets would depend on the order in which the replicas' threads come.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include <lockstep/support/thread_random.h>

namespace lockstep {

// Returns a new CPU generator for one rank in one step: a resumed run needs no more than these numbers. Its
// seed is the first draw of SplitMix64(seed, {3, step, rank}), of which torch's generator takes the lower 32
// bits. In Python, modulo 2^64, with mix64 and GAMMA of data/batch_order.h:
//   state = mix64(mix64(mix64(mix64(seed + GAMMA) + 3) + step) + rank)
//   torch.Generator().manual_seed(mix64(state + GAMMA))
at::Generator replica_generator(uint64_t seed, int64_t step, int rank);

// The random numbers of a replica in a step, while one lives (thread_random.h says for which operations):
//
//   for (int64_t step = 0; ...) {
//     const ReplicaRandom random(seed, step, endpoint.rank());
//     net(X) ...  // torch::nn::Dropout drops what (seed, step, rank) says
//
// Operations on a GPU draw from that GPU's default generator, which its replicas share. The constructor of
// ReplicaWorkers calls prepare().
class ReplicaRandom : public ThreadRandom {
 public:
  ReplicaRandom(uint64_t seed, int64_t step, int rank) : ThreadRandom(replica_generator(seed, step, rank)) {}
  using ThreadRandom::ThreadRandom;  // for a stream of numbers that goes on later
};

}  // namespace lockstep
