// A collective as a replica has called it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace lockstep {

// All replicas of all processes make the same calls in the same order. Nothing is formatted before something
// has failed.
struct Call {
  uint64_t number = 0;    // among the calls of this replica, from 0
  const char* name = "";  // "allreduce"; static
  int root = -1;          // the rank that a broadcast is from
  int64_t elements = 0;
  c10::ScalarType type = c10::ScalarType::Undefined;

  bool operator==(const Call& other) const;
};

// "allreduce", "broadcast from 1"
std::string name_of(const Call& call);

// "allreduce 17 of 25,600 float32", "broadcast 3 from rank 1 of 5 bool"
std::string text_of(const Call& call);

// Equal for equal calls in all processes, else different but for one pair in 2^32.
uint32_t digest_of(const Call& call);

}  // namespace lockstep
