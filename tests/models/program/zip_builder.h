// Zip archives by hand, right and wrong ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <zlib.h>

#include <lockstep/tests/support/files.h>

namespace lockstep::testing {

// Bytes of a number, little endian.
template <class T>
std::string little(T value) {
  std::string text;
  for (size_t i = 0; i < sizeof(T); ++i)
    text += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
  return text;
}

struct ZipRecord {
  std::string name, bytes;
  // The headers' words, where they are not the truth.
  std::string local_name = {};
  uint16_t flags = 0, method = 0;
  bool wide = false;          // sizes and offset in zip64 fields of the directory
  bool sizes_follow = false;  // as torch writes: the local header has none
  int64_t more_bytes = 0;     // added to the size in the directory
  int64_t move = 0;           // added to the offset in the directory
  uint32_t crc_change = 0;    // exclusive or
  std::string extra = {};     // of the local header
};

struct ZipEnd {
  bool wide = false;
  int64_t more_entries = 0, move = 0, more_bytes = 0;  // added to what is true
  std::string rubbish = {};                            // after the last entry of the directory
  std::string comment = {};
};

inline uint32_t crc_of(const std::string& bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

inline std::string zip_of(const std::vector<ZipRecord>& records, const ZipEnd& end = {}) {
  std::string file, directory;
  for (const auto& record : records) {
    const auto size = record.bytes.size();
    const auto crc = crc_of(record.bytes) ^ record.crc_change;
    const auto flags = static_cast<uint16_t>(record.flags | (record.sizes_follow ? 8 : 0));
    const auto told = static_cast<uint64_t>(static_cast<int64_t>(size) + record.more_bytes);
    const auto offset = static_cast<uint64_t>(static_cast<int64_t>(file.size()) + record.move);
    const auto& local = record.local_name.empty() ? record.name : record.local_name;
    const auto in_local = static_cast<uint32_t>(record.sizes_follow ? 0 : told);
    file += "PK\3\4" + little<uint16_t>(20) + little(flags) + little(record.method) + little<uint32_t>(0) +
            little<uint32_t>(record.sizes_follow ? 0 : crc) + little(in_local) + little(in_local) +
            little(static_cast<uint16_t>(local.size())) + little(static_cast<uint16_t>(record.extra.size())) +
            local + record.extra + record.bytes;
    if (record.sizes_follow) file += "PK\7\10" + little(crc) + little(in_local) + little(in_local);
    const auto field = !record.wide ? std::string()
                                    : little<uint16_t>(1) + little<uint16_t>(24) + little(told) +
                                          little(told) + little(offset);
    const auto narrow = [&](uint64_t value) {
      return little(record.wide ? UINT32_MAX : static_cast<uint32_t>(value));
    };
    directory += "PK\1\2" + little<uint16_t>(20) + little<uint16_t>(20) + little(flags) +
                 little(record.method) + little<uint32_t>(0) + little(crc) + narrow(told) + narrow(told) +
                 little(static_cast<uint16_t>(record.name.size())) +
                 little(static_cast<uint16_t>(field.size())) + little<uint16_t>(0) + little<uint16_t>(0) +
                 little<uint16_t>(0) + little<uint32_t>(0) + narrow(offset) + record.name + field;
  }
  directory += end.rubbish;
  const auto begin = static_cast<uint64_t>(static_cast<int64_t>(file.size()) + end.move);
  const auto size = static_cast<uint64_t>(static_cast<int64_t>(directory.size()) + end.more_bytes);
  const auto entries = static_cast<uint64_t>(static_cast<int64_t>(records.size()) + end.more_entries);
  const auto place = file.size() + directory.size();
  file += directory;
  if (end.wide) {
    file += "PK\6\6" + little<uint64_t>(44) + little<uint16_t>(45) + little<uint16_t>(45) +
            little<uint32_t>(0) + little<uint32_t>(0) + little(entries) + little(entries) + little(size) +
            little(begin);
    file += "PK\6\7" + little<uint32_t>(0) + little<uint64_t>(place) + little<uint32_t>(1);
  }
  const auto narrow = [&](uint64_t value) {
    return little(end.wide ? UINT32_MAX : static_cast<uint32_t>(value));
  };
  const auto count = little(static_cast<uint16_t>(end.wide ? UINT16_MAX : entries));
  return file + "PK\5\6" + little<uint32_t>(0) + count + count + narrow(size) + narrow(begin) +
         little(static_cast<uint16_t>(end.comment.size())) + end.comment;
}

}  // namespace lockstep::testing
