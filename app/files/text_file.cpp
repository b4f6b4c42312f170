#include <lockstep/app/files/text_file.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Why this path cannot be read; empty if it is a regular file.
std::string why_no_file(const std::string& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) return "there is no such file";
  if (type == fs::file_type::directory) return "it is a folder";
  if (type == fs::file_type::none) return error.message();
  return type == fs::file_type::regular ? "" : "it is not a regular file";
}

}  // namespace

std::string read_text_file(const std::string& path, int64_t most_bytes,
                           const std::function<void(const std::string& why)>& refuse) {
  if (const auto why = why_no_file(path); !why.empty()) refuse(why);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (std::array<char, 1 << 16> part; file;) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (static_cast<int64_t>(text.size()) > most_bytes) {
      const bool large = most_bytes >= 1 << 20;
      refuse(fmt::format("it has more than {} {}", most_bytes >> (large ? 20 : 10), large ? "MB" : "KB"));
    }
  }
  if (!file.is_open() || file.bad()) refuse(errno_text(errno));
  return text;
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path, /*overwrite=*/true);
  file.write(text);
  file.commit();
}

}  // namespace lockstep
