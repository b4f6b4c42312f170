#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {

void allreduce_root(const LocalRound& round) {
  if (round.rank == 0) allreduce(round.tensors);
}

}  // namespace lockstep
