#include <lockstep/models/program/archive.h>

#include <fmt/format.h>
#include <zlib.h>

#include <utility>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/mapped_file.h>
#include <lockstep/models/program/zip_directory.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const FormatError& error) {
  throw WeightsError(fmt::format("program {} {}", in_quotes(path.native()), error.what()), error.hint());
}

// A name that could leave its folder, if somebody unpacked it, or that has two spellings.
bool is_plain(std::string_view name) {
  if (name.find('\0') != name.npos || name.find('\\') != name.npos) return false;
  for (size_t begin = 0;;) {
    const auto end = name.find('/', begin);
    const auto part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == name.npos) return true;
    begin = end + 1;
  }
}

}  // namespace

Archive::Archive(const std::filesystem::path& path) : path_(path) {
  try {
    file_ = std::make_unique<const MappedFile>(path);
    add_records();
  } catch (const FormatError& error) {
    refuse(path, error);
  }
}

Archive::~Archive() = default;

void Archive::add_records() {
  const auto entries = read_zip_directory(file_->bytes());
  records_.reserve(entries.size());
  for (const auto& entry : entries) {
    const auto slash = entry.name.find('/');
    if (!is_plain(entry.name)) {
      throw FormatError(fmt::format("has a record with the name {}", in_quotes(entry.name)));
    }
    if (slash == entry.name.npos) {
      throw FormatError(fmt::format("has a record {} that is in no folder, as torch before 2.8 wrote it",
                                    in_quotes(entry.name)),
                        "export it with torch 2.12 to 2.15");
    }
    const auto root = entry.name.substr(0, slash);
    if (records_.empty()) root_ = root;
    if (root != root_) {
      throw FormatError(fmt::format("has two root folders, {} and {}", in_quotes(root_), in_quotes(root)));
    }
    records_.push_back(
        {entry.name.substr(slash + 1), file_->bytes().subspan(entry.begin, entry.size), entry.crc32});
    if (!index_.emplace(records_.back().name, records_.size() - 1).second) {
      throw FormatError(fmt::format("has two records {}", in_quotes(entry.name)));
    }
  }
}

const Archive::Record* Archive::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &records_[found->second];
}

const Archive::Record& Archive::record(std::string_view name) const {
  const auto* found = find(name);
  if (!found) refuse(path_, FormatError(fmt::format("has no record {}", in_quotes(name))));
  return *found;
}

std::span<const std::byte> Archive::bytes(std::string_view name) const {
  const auto& found = record(name);
  try {
    file_->check_unchanged();
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(found.bytes.data()), found.bytes.size()));
    if (crc != found.crc32) {
      throw FormatError(fmt::format("is damaged: record {} has CRC-32 {:08x}, and the file says {:08x}",
                                    in_quotes(name), crc, found.crc32),
                        "copy or export it again");
    }
  } catch (const FormatError& error) {
    refuse(path_, error);
  }
  return found.bytes;
}

std::string_view Archive::text(std::string_view name) const {
  const auto content = bytes(name);
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

std::span<const std::byte> Archive::whole_file() const { return file_->bytes(); }

}  // namespace lockstep::program
