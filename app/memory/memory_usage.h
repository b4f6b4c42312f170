// Memory as the kernel counts it, in bytes; 0 where it does not say.
#pragma once

#include <cstdint>

namespace lockstep {

int64_t resident_bytes();       // of this process, now
int64_t peak_resident_bytes();  // of this process, the most since it started
int64_t total_bytes();          // of the machine
int64_t available_bytes();      // of the machine: what could still be taken without swapping

}  // namespace lockstep
