// Chunks travel round a ring: in n-1 steps each rank adds what its left neighbour holds of one chunk, after
// which rank r has the whole sum of chunk r+1; in n-1 more steps the sums travel on. Every step moves S/n
// bytes to each rank, from its neighbour alone, so that all links of a ring are busy all the time. (P.
// Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.) Chunk
// c is summed in the order c, c+1, ..., c-1.
#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {

void allreduce_ring(const LocalRound& round) {
  const int world = round.world();
  const auto around = [&](int position) { return (position % world + world) % world; };
  const int left = around(round.rank - 1);
  for (int step = 0; step < world - 1; ++step) {
    const int c = around(round.rank - step - 1);  // what the left neighbour finished in the step before
    auto own = round.chunk(round.rank, c);
    own.add_(round.chunk(left, c).to(own.device()));
    round.sync();
  }
  for (int step = 0; step < world - 1; ++step) {
    const int c = around(round.rank - step);
    round.chunk(round.rank, c).copy_(round.chunk(left, c));
    round.sync();
  }
}

}  // namespace lockstep
