#include <lockstep/app/bench/allreduce/sizes.h>

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include <lockstep/app/cli/suggest.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr std::string_view kUnits = "KMG";
constexpr int64_t kMostBytes = int64_t{1} << 40;

std::string wanted(const std::string& text) {
  return fmt::format("must be a number of bytes such as 8, 512K or 128M, got {}", in_quotes(text));
}

}  // namespace

int64_t parse_bytes(const std::string& text) {
  int64_t bytes = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const auto* end = text.data() + text.size();
  if (error != std::errc() || bytes < 0 || end - rest > 1) throw UsageError(wanted(text));
  if (rest != end) {
    const auto unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*rest))));
    if (unit == std::string_view::npos) throw UsageError(wanted(text));
    const auto shift = 10 * (unit + 1);
    bytes = bytes > (kMostBytes >> shift) ? kMostBytes + 1 : bytes << shift;
  }
  if (bytes > kMostBytes) throw UsageError(fmt::format("must be at most 1024G, got {}", in_quotes(text)));
  return bytes;
}

CLI::Validator byte_size(int64_t least) {
  return CLI::Validator(
      [least](const std::string& text) -> std::string {
        try {
          const auto bytes = parse_bytes(text);
          if (bytes < least) return fmt::format("must be at least {}, got {}", least, in_quotes(text));
          return {};
        } catch (const UsageError& error) {
          return error.what();
        }
      },
      "BYTES");
}

std::string bytes_text(int64_t bytes) {
  size_t unit = 0;
  while (unit < kUnits.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}", bytes, kUnits[unit - 1]);
}

}  // namespace lockstep
