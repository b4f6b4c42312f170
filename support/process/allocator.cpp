// The program `lockstep` uses jemalloc as its malloc; the library leaves the choice to the program it is
// linked into. Every training step allocates and frees the same blocks, many of 10 to 50 MB. glibc's malloc
// gets the large ones from the kernel each time, page by page, and wastes a quarter of its 64 MB heaps.
#include <jemalloc/jemalloc.h>

// Keeps freed memory in the process for the next step, and uses pages of 2 MB if the kernel allows them
// (/sys/kernel/mm/transparent_hugepage: always or madvise). The environment variable MALLOC_CONF overrides
// this.
const char* malloc_conf = "dirty_decay_ms:-1,thp:always";
