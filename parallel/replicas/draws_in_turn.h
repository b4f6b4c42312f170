// build_replicas.h for objects that are built in the replicas' threads.
#pragma once

namespace lockstep {

// While one lives, with_same_draws() does not wait for its turn in this thread: the thread that has the turn
// waits for this one.
class DrawsInTurn {
 public:
  DrawsInTurn();
  ~DrawsInTurn();
  DrawsInTurn(const DrawsInTurn&) = delete;
  DrawsInTurn& operator=(const DrawsInTurn&) = delete;

  static bool has_turn();  // of the calling thread
};

}  // namespace lockstep
