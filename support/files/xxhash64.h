// xxHash64 with seed 0 (github.com/Cyan4973/xxHash). Finds accidental changes of bytes at the speed of
// memory. It is no protection against intended ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// Returns the hash of the bytes. There may be none.
uint64_t xxhash64(std::span<const std::byte> bytes);

}  // namespace lockstep
