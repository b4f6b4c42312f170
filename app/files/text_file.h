// Reads files of text that somebody names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

// Returns the bytes of a regular file. Otherwise calls `refuse`, which must throw, with the reason: "there is
// no such file", "it has more than 1 MB". A device may have no end, and reading a pipe may wait for ever.
std::string read_text_file(const std::string& path, int64_t most_bytes,
                           const std::function<void(const std::string& why)>& refuse);

}  // namespace lockstep
