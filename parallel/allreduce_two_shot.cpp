// The chapter's third exercise: different chunks are reduced on different devices.
//
// The chapter's own allreduce sends every replica's gradients to one device: its link carries (n-1) S bytes
// in and (n-1) S out while all others idle. Here rank i sums chunk i (S/n bytes from each of n-1 others) and
// every rank then fetches the n-1 finished chunks it lacks: each receives 2 S (n-1)/n bytes, at the same time
// as all others, in two steps. (Reduce-scatter and all-gather: R. Thakur et al., "Optimization of Collective
// Communication Operations in MPICH", 2005.)
#include <algorithm>

#include <lockstep/parallel/local_round.h>

namespace lockstep {
namespace {

// Leaves the sum of chunk `rank` in this rank's own tensor, taken in the order of ranks: ((t0 + t1) + t2) +
// ...
void sum_own_chunk(const LocalRound& round) {
  const int rank = round.rank;
  auto own = round.chunk(rank, rank);
  const auto theirs = [&](int other) { return round.chunk(other, rank).to(own.device()); };
  if (rank <= 1) {  // a + b and b + a have the same bits: ranks 0 and 1 can add in place
    own.add_(theirs(1 - rank));
  } else {
    auto sum = theirs(0) + theirs(1);
    for (int other = 2; other < rank; ++other) sum.add_(theirs(other));
    own.add_(sum);
  }
  for (int other = std::max(rank, 1) + 1; other < round.world(); ++other) own.add_(theirs(other));
}

}  // namespace

void allreduce_two_shot(const LocalRound& round) {
  if (round.world() == 1) return;
  sum_own_chunk(round);
  round.sync();
  for (int other = 0; other < round.world(); ++other) {
    if (other != round.rank) round.chunk(round.rank, other).copy_(round.chunk(other, other));
  }
}

}  // namespace lockstep
