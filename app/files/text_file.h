// Reads and writes files of text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the bytes of a regular file. Otherwise calls `refuse`, which must throw, with the reason: "there is
// no such file", "it has more than 1 MB". A device may have no end, and reading a pipe may wait for ever.
std::string read_text_file(const std::string& path, int64_t most_bytes,
                           const std::function<void(const std::string& why)>& refuse);

// Writes a file that holds this text, and is whole at any moment. Replaces an old one. Throws OutputError.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
