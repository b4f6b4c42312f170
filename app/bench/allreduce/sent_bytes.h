// The bytes that this process sends to others, as Linux counts them.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

// The bytes that this process has written so far to the TCP connections that are open now: what they carry,
// without headers and without what was sent again. nullopt where the kernel does not count.
std::optional<int64_t> sent_bytes();

}  // namespace lockstep
