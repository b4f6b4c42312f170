#include <lockstep/data/file_digest.h>

#include <fmt/format.h>

#include <system_error>

#include <lockstep/support/error.h>
#include <lockstep/support/files/sha256.h>

namespace lockstep {

void NameDigest::add(std::string_view name, int64_t size) {
  lines_ += fmt::format_int(size).str();
  lines_ += ' ';
  lines_ += name;
  lines_ += '\0';
}

std::string NameDigest::hex() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(lines_)));
  return hash.hex();
}

std::string digest_of_files(std::span<const std::filesystem::path> files) {
  NameDigest digest;
  for (const auto& file : files) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (error) {
      throw DataError(fmt::format("cannot read {}: {}", file.string(), error.message()),
                      "make the file readable (chmod), or name another folder");
    }
    digest.add(file.filename().native(), static_cast<int64_t>(size));
  }
  return digest.hex();
}

}  // namespace lockstep
