// Numbers of bytes as people type them: 8, 512K, 128M.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

// K, M and G are powers of 1024; the case does not matter. Throws UsageError that names both.
int64_t parse_bytes(const std::string& text);

// For CLI::Option::check(): what parse_bytes() takes, at least `least`.
CLI::Validator byte_size(int64_t least);

// "516272", "512K", "16M": the shortest that is exact.
std::string bytes_text(int64_t bytes);

}  // namespace lockstep
