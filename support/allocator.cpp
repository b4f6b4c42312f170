// The memory of the program `lockstep`: jemalloc serves its malloc. (The library leaves that to the program
// it is linked into.) A training step takes and frees the same blocks as the one before, many of them of 10
// to 50 MB. glibc's malloc asks the kernel for the larger ones each time, page by page, and loses a quarter
// of its 64 MB heaps between the others.
#include <jemalloc/jemalloc.h>

// Freed memory stays with the process, for the next step; and it comes in pages of 2 MB where the kernel has
// them (/sys/kernel/mm/transparent_hugepage: always or madvise). MALLOC_CONF in the environment is read after
// this.
const char* malloc_conf = "dirty_decay_ms:-1,thp:always";
