#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {

void allreduce_root(const LocalRound& round) {
  if (round.local == 0) allreduce(round.tensors);
}

}  // namespace lockstep
