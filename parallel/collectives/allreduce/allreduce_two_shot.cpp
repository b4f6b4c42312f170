// Two-shot allreduce: reduce-scatter, then all-gather. It answers the chapter's third exercise: reduce
// different chunks on different devices.
//
// The chapter's allreduce sends every replica's gradients (S bytes) to one device: its link carries (n-1) S
// bytes in and (n-1) S out while all others idle. Here replica i sums chunk i (S/n bytes from each of n-1
// others) and copies the sum to the n-1 others: each replica moves 2 S (n-1)/n bytes, all at the same time.
// Only replica i touches chunk i of any tensor, so none waits for another in between. On a CPU both halves
// are one pass (sum_chunks.cpp).
// (R. Thakur et al., "Optimization of Collective Communication Operations in MPICH", 2005.)
#include <lockstep/parallel/collectives/allreduce/sum_chunks.h>
#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {

void allreduce_two_shot(const LocalRound& round) {
  if (round.size() == 1) return;
  const auto chunks = round.chunks(round.local, round.size());
  sum_chunks(chunks, chunks, round.own().device());
}

}  // namespace lockstep
