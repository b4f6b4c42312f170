#include <lockstep/support/allocator.h>

#include <malloc.h>

namespace lockstep {

void keep_freed_memory() {
  // Blocks up to the largest size that malloc's heaps take come from the heaps, not from mappings of their own, ...
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // ... and the heaps neither shrink nor go: a thread's heap has 64 MB, and it is kept when a neighbour has room for it
  // unless that much room is asked for.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace lockstep
