// A part of something flat.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

// Elements [begin, end). Empty unless begin < end.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

// The elements that both have.
inline ElementRange overlap(const ElementRange& a, const ElementRange& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace lockstep
