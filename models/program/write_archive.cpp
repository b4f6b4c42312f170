#include <fmt/format.h>
#include <zlib.h>

#include <concepts>
#include <string>
#include <string_view>

#include <lockstep/models/program/archive.h>
#include <lockstep/models/program/zip_directory.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>

namespace lockstep::program {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kFieldHead = 4;                       // of an extra field: its id and size
constexpr uint16_t kPadding = 'F' | 'B' << 8;          // the id of torch's padding
constexpr uint16_t kVersion = 45, kEarlyVersion = 20;  // zip's, with and without 64-bit numbers
constexpr uint16_t kFirstOfJanuary1980 = 0x21;

// Appends numbers, little endian.
class Fields {
 public:
  template <std::unsigned_integral T>
  Fields& add(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  Fields& add(std::string_view text) { return text_ += text, *this; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct Written {
  std::string name;  // with the root folder
  uint64_t size = 0, offset = 0;
  uint32_t crc = 0;

  bool wide() const { return size >= zip::kIn64 || offset >= zip::kIn64; }
};

uint32_t narrow(uint64_t value) { return value >= zip::kIn64 ? zip::kIn64 : static_cast<uint32_t>(value); }

// The fields that the local and the central header share, from the version to the name's length.
void add_common(Fields& fields, const Written& record, bool wide) {
  fields.add(wide ? kVersion : kEarlyVersion)
      .add(zip::kUtf8)
      .add(uint16_t{0})
      .add(uint16_t{0})
      .add(kFirstOfJanuary1980);
  fields.add(record.crc)
      .add(wide ? zip::kIn64 : narrow(record.size))
      .add(wide ? zip::kIn64 : narrow(record.size));
  fields.add(static_cast<uint16_t>(record.name.size()));
}

std::string local_header(const Written& record) {
  const bool wide = record.size >= zip::kIn64;
  const size_t extra64 = wide ? kFieldHead + 16 : 0;
  const auto unpadded = record.offset + zip::kLocalBytes + record.name.size() + extra64 + kFieldHead;
  const auto padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  Fields fields;
  fields.add(zip::kLocal);
  add_common(fields, record, wide);
  fields.add(static_cast<uint16_t>(extra64 + kFieldHead + padding)).add(record.name);
  if (wide) fields.add(zip::kExtra64).add(uint16_t{16}).add(record.size).add(record.size);
  return fields.add(kPadding).add(static_cast<uint16_t>(padding)).add(std::string(padding, 'Z')).text();
}

std::string central_header(const Written& record) {
  const bool wide = record.wide();
  Fields fields;
  fields.add(zip::kCentral).add(wide ? kVersion : kEarlyVersion);
  add_common(fields, record, wide);
  fields.add(static_cast<uint16_t>(wide ? kFieldHead + 24 : 0)).add(uint16_t{0});  // no comment
  fields.add(uint16_t{0}).add(uint16_t{0}).add(uint32_t{0});  // the first disk; no attributes
  fields.add(wide ? zip::kIn64 : narrow(record.offset)).add(record.name);
  if (wide) {
    fields.add(zip::kExtra64).add(uint16_t{24}).add(record.size).add(record.size).add(record.offset);
  }
  return fields.text();
}

// The ends of the directory: with 64-bit numbers, where those are, and the old one, whose numbers may not
// fit.
std::string directory_end(uint64_t entries, uint64_t begin, uint64_t size) {
  const auto few = static_cast<uint16_t>(entries >= UINT16_MAX ? UINT16_MAX : entries);
  Fields fields;
  fields.add(zip::kEnd64).add(uint64_t{zip::kEnd64Bytes - 12}).add(kVersion).add(kVersion);
  fields.add(uint32_t{0}).add(uint32_t{0}).add(entries).add(entries).add(size).add(begin);
  fields.add(zip::kLocator64).add(uint32_t{0}).add(begin + size).add(uint32_t{1});
  fields.add(zip::kEnd).add(uint16_t{0}).add(uint16_t{0}).add(few).add(few);
  return fields.add(narrow(size)).add(narrow(begin)).add(uint16_t{0}).text();
}

}  // namespace

void write_archive(const std::filesystem::path& path, const std::string& root,
                   const std::vector<NewRecord>& records) {
  AtomicFile file(path, true);
  uint64_t position = 0;
  const auto append = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    position += bytes.size();
  };
  const auto append_text = [&](const std::string& text) { append(std::as_bytes(std::span(text))); };
  std::vector<Written> written;
  for (const auto& record : records) {
    const auto bytes = record.bytes();
    const auto name = root + "/" + record.name;
    if (bytes.size() != record.size || name.size() > UINT16_MAX) {
      throw OutputError(fmt::format("record '{}' of '{}' has {} bytes instead of {}", record.name,
                                    path.native(), bytes.size(), record.size));
    }
    const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    written.push_back({name, bytes.size(), position, static_cast<uint32_t>(crc)});
    append_text(local_header(written.back()));
    append(bytes);
  }
  const auto begin = position;
  for (const auto& record : written) append_text(central_header(record));
  append_text(directory_end(written.size(), begin, position - begin));
  file.commit();
}

}  // namespace lockstep::program
