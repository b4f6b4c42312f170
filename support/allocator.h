// How the process's allocator treats memory that was freed.
#pragma once

namespace lockstep {

// Keeps freed memory for the next step instead of handing it back to the kernel: a training step frees all it took, and
// would get the same pages again one fault at a time. For a program's main(), before it allocates much;
// process-wide, glibc's malloc only.
void keep_freed_memory();

}  // namespace lockstep
