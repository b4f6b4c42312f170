#include <lockstep/app/cli/byte_size.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr std::string_view kUnits = "KMG";
constexpr int64_t kMostBytes = int64_t{1} << 40;

std::string wanted(const std::string& text) {
  return fmt::format("must be a size such as 8, 512K, 16MiB or 1G, got {}", in_quotes(text));
}

// 1048576 for "M", "MB", "MiB" or "mib"; 1 for "". Throws CLI::ValidationError for unknown units.
int64_t bytes_of_unit(const std::string& unit) {
  auto text = "1" + unit;
  CLI::AsSizeValue(/*kb_is_1000=*/false)(text);
  return std::stoll(text);
}

}  // namespace

int64_t parse_bytes(const std::string& text) {
  int64_t number = 0;
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const bool letters = std::all_of(rest, end, [](unsigned char c) { return std::isalpha(c) != 0; });
  if (error == std::errc::invalid_argument || number < 0 || !letters) throw UsageError(wanted(text));
  int64_t unit = 0;
  try {
    unit = bytes_of_unit({rest, end});
  } catch (const CLI::ValidationError&) {
    throw UsageError(wanted(text));
  }
  if (error != std::errc() || number > kMostBytes / unit) {
    throw UsageError(fmt::format("must be at most 1024G, got {}", in_quotes(text)));
  }
  return number * unit;
}

CLI::Validator byte_size(int64_t least) {
  return CLI::Validator(
      [least](const std::string& text) -> std::string {
        try {
          const auto bytes = parse_bytes(text);
          if (bytes < least) return fmt::format("must be at least {}, got {}", least, in_quotes(text));
          return {};
        } catch (const UsageError& error) {
          return error.message();
        }
      },
      "SIZE");
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
