// The sizes of worlds that `bench scaling` measures and predicts.
#pragma once

#include <set>

namespace lockstep {

// 1, 2, 4, ... and `most` itself.
inline std::set<int> worlds_up_to(int most) {
  std::set<int> worlds{most};
  for (int n = 1; n < most; n *= 2) worlds.insert(n);
  return worlds;
}

}  // namespace lockstep
