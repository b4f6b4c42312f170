// Ring allreduce. A tensor of S bytes is cut into n chunks, one per replica. In n-1 steps each replica adds
// its left neighbour's partial sum of one chunk to its own; then replica r has the whole sum of chunk r+1. In
// n-1 more steps the sums travel round the ring. Each step moves S/n bytes to each replica, from its left
// neighbour only, so all links of a ring are busy all the time. Chunk c is summed in the order c, c+1, ...,
// c-1. (P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// 2009.)
#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {

void allreduce_ring(const LocalRound& round) {
  const int size = round.size();
  const auto around = [&](int position) { return (position % size + size) % size; };
  const auto chunk = [&](int replica, int index) { return round.chunk(replica, index, size); };
  const int left = around(round.local - 1);
  for (int step = 0; step < size - 1; ++step) {
    // the chunk that the left neighbour added to in the previous step; at first its own
    const int c = around(round.local - step - 1);
    auto own = chunk(round.local, c);
    own.add_(chunk(left, c).to(own.device()));
    round.barrier();
  }
  for (int step = 0; step < size - 1; ++step) {
    const int c = around(round.local - step);
    chunk(round.local, c).copy_(chunk(left, c));
    round.barrier();
  }
}

}  // namespace lockstep
