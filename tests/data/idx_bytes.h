// Makes IDX files byte by byte, for tests with damaged files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::testing {

using Bytes = std::vector<uint8_t>;

inline void append_big_endian(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

// Returns a whole IDX file of unsigned bytes.
inline Bytes idx_bytes(const std::vector<uint32_t>& dimensions, const Bytes& values) {
  Bytes bytes = {0, 0, 0x08, static_cast<uint8_t>(dimensions.size())};
  for (const uint32_t dimension : dimensions) append_big_endian(bytes, dimension);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

inline void write_bytes(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace lockstep::testing
