// PNG files of pixels, for tests: not compressed, and written here byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::testing {

namespace png {

inline std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

inline uint32_t crc32(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

inline std::string chunk(const std::string& name, const std::string& data) {
  return big_endian(static_cast<uint32_t>(data.size())) + name + data + big_endian(crc32(name + data));
}

// Stored blocks of at most 65,535 bytes (RFC 1950, RFC 1951).
inline std::string stored(const std::string& data) {
  std::string bytes = "\x78\x01";
  uint32_t a = 1, b = 0;
  for (const char byte : data) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  for (size_t begin = 0; begin < data.size(); begin += 65535) {
    const auto block = data.substr(begin, 65535);
    const auto size = static_cast<uint32_t>(block.size());
    bytes += static_cast<char>(begin + 65535 >= data.size());
    for (const auto value : {size, ~size}) {
      bytes += static_cast<char>(value);
      bytes += static_cast<char>(value >> 8);
    }
    bytes += block;
  }
  return bytes + big_endian(b << 16 | a);
}

}  // namespace png

// pixels: (height, width, channels) with 1 channel, grey, or 3.
inline std::string png_file(uint32_t channels, uint32_t height, uint32_t width, const std::string& pixels) {
  std::string lines;
  for (size_t y = 0; y < height; ++y) lines += '\0' + pixels.substr(y * width * channels, width * channels);
  const std::string form{'\x08', static_cast<char>(channels == 3 ? 2 : 0), '\0', '\0', '\0'};
  return "\x89PNG\r\n\x1a\n" + png::chunk("IHDR", png::big_endian(width) + png::big_endian(height) + form) +
         png::chunk("IDAT", png::stored(lines)) + png::chunk("IEND", "");
}

}  // namespace lockstep::testing
