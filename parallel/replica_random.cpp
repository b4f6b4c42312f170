#include <lockstep/parallel/replica_random.h>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/support/random_streams.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {

at::Generator replica_generator(uint64_t seed, int64_t step, int rank) {
  SplitMix64 draws(seed, {kReplicaStream, static_cast<uint64_t>(step), static_cast<uint64_t>(rank)});
  return at::detail::createCPUGenerator(draws.next());
}

}  // namespace lockstep
