// Data files of named tensors, written byte by byte: in any order of tensors, and with any header.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing {

struct TensorBytes {
  std::string name;   // as the header has it, in JSON
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  std::string bytes;
};

inline void write_safetensors_bytes(const std::filesystem::path& path, std::string_view header,
                                    std::string_view values) {
  std::ofstream out(path, std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << values;
}

// In the order of the list.
inline void write_tensor_file(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors) {
  std::vector<std::string> entries;
  std::string values;
  for (const auto& [name, dtype, shape, bytes] : tensors) {
    entries.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, dtype,
                                  fmt::join(shape, ","), values.size(), values.size() + bytes.size()));
    values += bytes;
  }
  write_safetensors_bytes(path, fmt::format("{{{}}}", fmt::join(entries, ",")), values);
}

}  // namespace lockstep::testing
