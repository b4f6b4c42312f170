// Sizes in bytes as users type them: 8, 512K, 16MiB, 128M.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

// A whole number and an optional unit: K, KB and KiB are all 1024 bytes, in upper or lower case. The same
// holds for M, G and T. Throws UsageError that names the expected form and the text.
int64_t parse_bytes(const std::string& text);

// For CLI::Option::check(): accepts what parse_bytes() accepts, if at least `least`.
CLI::Validator byte_size(int64_t least);

// "516272", "512K", "16M": the shortest exact form.
std::string bytes_text(int64_t bytes);

}  // namespace lockstep
