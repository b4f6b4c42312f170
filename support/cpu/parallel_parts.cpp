#include <lockstep/support/cpu/parallel_parts.h>

namespace lockstep {

void parallel_parts(int64_t parts, const std::function<void(int64_t part)>& body) {
  // Always uses all threads, even with fewer parts: when the number changes from one region to the next,
  // GCC's OpenMP ends threads and starts new ones (https://github.com/pytorch/pytorch/issues/32008).
#pragma omp parallel for schedule(static, 1) if (parts > 1)
  for (int64_t part = 0; part < parts; ++part) body(part);
}

void parallel_ranges(int64_t count, int64_t parts,
                     const std::function<void(int64_t first, int64_t last, int64_t part)>& body) {
  parallel_parts(parts, [&](int64_t part) {
    const int64_t first = part_begin(count, part, parts), last = part_begin(count, part + 1, parts);
    if (first < last) body(first, last, part);
  });
}

}  // namespace lockstep
