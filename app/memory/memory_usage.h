// Memory in bytes, from /proc; 0 if the kernel does not tell.
#pragma once

#include <cstdint>

namespace lockstep {

int64_t resident_bytes();       // of this process, now
int64_t peak_resident_bytes();  // of this process, its maximum so far
int64_t total_bytes();          // of the machine
int64_t available_bytes();      // of the machine: available without swapping

}  // namespace lockstep
