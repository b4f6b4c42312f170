#include <lockstep/models/program/zip_directory.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <lockstep/models/program/format_error.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

using Bytes = std::span<const std::byte>;

[[noreturn]] void damaged(const std::string& what) {
  throw FormatError("is damaged: " + what, "copy or export it again");
}

// Numbers are little endian, as this machine's.
template <class T>
T number(Bytes bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.subspan(at, sizeof(T)).data(), sizeof(T));
  return value;
}

// The part of the file, or an error that says what it would have been.
Bytes part(Bytes file, uint64_t begin, uint64_t size, std::string_view what) {
  if (begin > file.size() || size > file.size() - begin) {
    damaged(fmt::format("{} has {} bytes from byte {} on, of {}", what, size, begin, file.size()));
  }
  return file.subspan(begin, size);
}

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

struct Directory {
  uint64_t begin = 0, size = 0, entries = 0;
};

size_t find_end(Bytes file) {
  constexpr size_t kMostComment = UINT16_MAX;
  constexpr const char* kHint = "name a file that scripts/export_program.py or torch.export.save has written";
  if (file.size() < zip::kEndBytes) throw FormatError("is no zip archive: it has less than 22 bytes", kHint);
  const size_t last = file.size() - zip::kEndBytes;
  for (size_t at = last + 1; at-- > 0 && last - at <= kMostComment;) {
    if (number<uint32_t>(file, at) == zip::kEnd && number<uint16_t>(file, at + 20) == last - at) return at;
  }
  if (number<uint32_t>(file, 0) == zip::kLocal) damaged("the end of its directory is missing");
  throw FormatError("is no zip archive", kHint);
}

Directory find_directory(Bytes file) {
  const auto end = find_end(file);
  if (end >= zip::kLocator64Bytes) {
    const auto locator = end - zip::kLocator64Bytes;
    if (number<uint32_t>(file, locator) == zip::kLocator64) {
      const auto end64 =
          part(file, number<uint64_t>(file, locator + 8), zip::kEnd64Bytes, "the directory's end");
      if (number<uint32_t>(end64, 0) != zip::kEnd64) damaged("its zip64 directory has no end");
      if (number<uint32_t>(end64, 16) != 0 || number<uint32_t>(end64, 20) != 0)
        damaged("it has several parts");
      return {number<uint64_t>(end64, 48), number<uint64_t>(end64, 40), number<uint64_t>(end64, 32)};
    }
  }
  if (number<uint16_t>(file, end + 4) != 0 || number<uint16_t>(file, end + 6) != 0)
    damaged("it has several parts");
  return {number<uint32_t>(file, end + 16), number<uint32_t>(file, end + 12),
          number<uint16_t>(file, end + 10)};
}

// Replaces numbers that did not fit into 32 bits by those of the extra field, which holds them in this order.
void read_extra64(Bytes extra, std::span<uint64_t* const> numbers, const std::string& name) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = number<uint16_t>(extra, at);
    const auto field = part(extra, at + 4, number<uint16_t>(extra, at + 2), "an extra field of " + name);
    at += 4 + field.size();
    if (id != zip::kExtra64) continue;
    size_t next = 0;
    for (auto* value : numbers) {
      if (*value != zip::kIn64) continue;
      if (next + 8 > field.size()) damaged(fmt::format("{} has too short a zip64 field", name));
      *value = number<uint64_t>(field, next);
      next += 8;
    }
    return;
  }
}

struct Header {  // what the central and the local header both have
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc32 = 0;
  uint64_t stored = 0, size = 0, offset = 0;
};

void check_stored(const Header& header, const std::string& name) {
  if (header.flags & zip::kEncrypted) throw FormatError(fmt::format("has an encrypted record {}", name));
  if (header.method != 0 && header.name.find("/code/__torch__") != std::string::npos) {
    throw FormatError("was written by torch.jit.save(), not by torch.export",
                      "export the module with scripts/export_program.py");
  }
  if (header.method != 0 || header.stored != header.size) {
    throw FormatError(fmt::format("has a compressed record {} (method {}, {} of {} bytes)", name,
                                  header.method, header.stored, header.size),
                      "torch.export writes stored ones: export it again, or repack it with zip -0");
  }
}

// The local header must say the same. Returns where the record's bytes begin.
size_t check_local(Bytes file, const Header& central, const std::string& name) {
  const auto head = part(file, central.offset, zip::kLocalBytes, name);
  if (number<uint32_t>(head, 0) != zip::kLocal)
    damaged(fmt::format("{} has no header at byte {}", name, central.offset));
  const auto name_bytes = number<uint16_t>(head, 26), extra_bytes = number<uint16_t>(head, 28);
  const auto begin = central.offset + zip::kLocalBytes;
  if (text_of(part(file, begin, name_bytes, name)) != central.name) damaged(name + " has two names");
  Header local{.name = {},
               .flags = number<uint16_t>(head, 6),
               .method = number<uint16_t>(head, 8),
               .crc32 = number<uint32_t>(head, 14),
               .stored = number<uint32_t>(head, 18),
               .size = number<uint32_t>(head, 22)};
  uint64_t* const sizes[] = {&local.size, &local.stored};
  read_extra64(part(file, begin + name_bytes, extra_bytes, name), sizes, name);
  if (local.flags & zip::kEncrypted || local.method != central.method)
    damaged(name + " is stored in two ways");
  if (!(local.flags & zip::kSizesFollow) &&
      (local.crc32 != central.crc32 || local.size != central.size || local.stored != central.stored)) {
    damaged(fmt::format("{} has {} bytes in one place and {} in another, or two CRC-32", name, local.size,
                        central.size));
  }
  return begin + name_bytes + extra_bytes;
}

void check_overlaps(std::vector<std::pair<size_t, const ZipEntry*>> begins, uint64_t directory) {
  std::ranges::sort(begins);
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto& entry = *begins[i].second;
    const bool last = i + 1 == begins.size();
    const auto limit = last ? directory : begins[i + 1].first;
    if (entry.begin > limit || entry.size > limit - entry.begin) {
      damaged(fmt::format("{} takes bytes {} to {}, and {} begins at {}", in_quotes(entry.name), entry.begin,
                          entry.begin + entry.size,
                          last ? "the directory" : in_quotes(begins[i + 1].second->name), limit));
    }
  }
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(Bytes file) {
  const auto directory = find_directory(file);
  auto rest = part(file, directory.begin, directory.size, "its directory");
  if (directory.entries > rest.size() / zip::kCentralBytes) {
    damaged(fmt::format("{} records in a directory of {} bytes", directory.entries, rest.size()));
  }
  std::vector<ZipEntry> entries;
  std::vector<std::pair<size_t, const ZipEntry*>> begins;  // of the records with their headers
  entries.reserve(directory.entries);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const auto head = part(rest, 0, zip::kCentralBytes, "its directory");
    if (number<uint32_t>(head, 0) != zip::kCentral) damaged(fmt::format("entry {} of its directory", i));
    const size_t name_bytes = number<uint16_t>(head, 28), extra_bytes = number<uint16_t>(head, 30);
    const size_t whole = zip::kCentralBytes + name_bytes + extra_bytes + number<uint16_t>(head, 32);
    part(rest, 0, whole, "its directory");
    Header header{.name = std::string(text_of(rest.subspan(zip::kCentralBytes, name_bytes))),
                  .flags = number<uint16_t>(head, 8),
                  .method = number<uint16_t>(head, 10),
                  .crc32 = number<uint32_t>(head, 16),
                  .stored = number<uint32_t>(head, 20),
                  .size = number<uint32_t>(head, 24),
                  .offset = number<uint32_t>(head, 42)};
    const auto name = in_quotes(header.name);
    uint64_t* const numbers[] = {&header.size, &header.stored, &header.offset};
    read_extra64(rest.subspan(zip::kCentralBytes + name_bytes, extra_bytes), numbers, name);
    check_stored(header, name);
    const auto begin = check_local(file, header, name);
    part(file, begin, header.size, name);
    entries.push_back({header.name, begin, header.size, header.crc32});
    begins.emplace_back(header.offset, &entries.back());
    rest = rest.subspan(whole);
  }
  if (!rest.empty()) damaged(fmt::format("{} bytes after the last entry of its directory", rest.size()));
  check_overlaps(std::move(begins), directory.begin);
  return entries;
}

}  // namespace lockstep::program
