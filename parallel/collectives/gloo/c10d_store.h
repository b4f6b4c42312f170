// c10d's store, for the sources that call it.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep {

struct C10dStore {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace lockstep
