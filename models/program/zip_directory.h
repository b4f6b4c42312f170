// The directory of a zip archive of stored records.
//
// A zip file holds records, each a local header, its name and bytes; then a central directory, which lists
// them, and the end of the directory, which says where that is. Large files repeat the end with 64-bit
// numbers in front of it (zip64). See APPNOTE.TXT of PKWARE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::program {

struct ZipEntry {
  std::string name;
  size_t begin = 0, size = 0;  // of its bytes in the file
  uint32_t crc32 = 0;
};

// Returns the entries in the order of the directory. Throws FormatError unless each is stored (neither
// compressed nor encrypted), lies in front of the directory, overlaps no other, and has the same name, sizes
// and CRC-32 in both places. Names are as the file has them.
std::vector<ZipEntry> read_zip_directory(std::span<const std::byte> file);

// The formats' signatures, and the sizes of their fixed parts.
namespace zip {
constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint16_t kExtra64 = 0x0001;      // an extra field with 64-bit numbers
constexpr uint16_t kEncrypted = 0x2041;    // bits of the flags: 0, 6, 13
constexpr uint16_t kSizesFollow = 0x0008;  // the local header has no sizes and no CRC-32
constexpr uint16_t kUtf8 = 0x0800;         // the name's encoding
constexpr uint32_t kIn64 = UINT32_MAX;     // the number is in the extra field
}  // namespace zip

}  // namespace lockstep::program
