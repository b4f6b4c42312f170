// Memory in bytes, from /proc; 0 if the kernel does not tell.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

// The value of a line such as "VmRSS:     1234 kB" of a file there. key: "VmRSS:"
int64_t bytes_in_file(const std::filesystem::path& file, const std::string& key);

int64_t resident_bytes();       // of this process, now
int64_t peak_resident_bytes();  // of this process, its maximum so far
int64_t total_bytes();          // of the machine
int64_t available_bytes();      // of the machine: available without swapping

}  // namespace lockstep
