#include <lockstep/parallel/collectives/allreduce/local_algorithms.h>

#include <algorithm>

namespace lockstep {

// Each is in the file of its name.
void allreduce_root(const LocalRound& round);
void allreduce_two_shot(const LocalRound& round);
void allreduce_ring(const LocalRound& round);

std::span<const LocalAlgorithm> local_algorithms() {
  static constexpr LocalAlgorithm kAlgorithms[] = {
      {Allreduce::kRoot, allreduce_root, "on the first replica"},
      {Allreduce::kTwoShot, allreduce_two_shot, "each replica sums one part"},
      {Allreduce::kRing, allreduce_ring, "around a ring"},
  };
  return kAlgorithms;
}

const LocalAlgorithm* find_local_algorithm(Allreduce allreduce) {
  const auto all = local_algorithms();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& algorithm) { return algorithm.allreduce == allreduce; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lockstep
