// Reads and writes safetensors files independently of lockstep's code. A file has 8 bytes with the length of
// a JSON header, little-endian, the header, then the tensors' values.
#pragma once

#include <lockstep/tests/catch.h>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/tests/support/files.h>

namespace lockstep::testing {

struct SavedTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

struct SavedWeights {
  std::map<std::string, std::string> metadata;
  std::map<std::string, SavedTensor> tensors;
};

static_assert(std::endian::native == std::endian::little);

inline SavedWeights read_weights(const std::string& path) {
  const auto file = read_file(path);
  uint64_t length = 0;
  REQUIRE(file.size() >= sizeof(length));
  std::memcpy(&length, file.data(), sizeof(length));
  const auto values = sizeof(length) + length;
  REQUIRE(file.size() >= values);
  SavedWeights weights;
  const auto header = nlohmann::json::parse(file.substr(sizeof(length), length));
  for (const auto& [name, item] : header.items()) {
    if (name == "__metadata__") {
      weights.metadata = item.get<std::map<std::string, std::string>>();
      continue;
    }
    const auto offsets = item.at("data_offsets").get<std::vector<size_t>>();
    weights.tensors[name] = {item.at("dtype"), item.at("shape"),
                             file.substr(values + offsets.at(0), offsets.at(1) - offsets.at(0))};
  }
  return weights;
}

inline void write_weights(const std::string& path, const SavedWeights& weights) {
  nlohmann::json header;
  if (!weights.metadata.empty()) header["__metadata__"] = weights.metadata;
  std::string values;
  for (const auto& [name, tensor] : weights.tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {values.size(), values.size() + tensor.bytes.size()}}};
    values += tensor.bytes;
  }
  const auto text = header.dump();
  const uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << values;
  REQUIRE(file.flush());
}

template <class Number>
std::vector<double> numbers_in(const SavedTensor& tensor) {
  std::vector<Number> values(tensor.bytes.size() / sizeof(Number));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return {values.begin(), values.end()};
}

inline std::vector<double> values_of(const SavedTensor& tensor) {
  if (tensor.dtype == "F64") return numbers_in<double>(tensor);
  if (tensor.dtype == "F32") return numbers_in<float>(tensor);
  REQUIRE(tensor.dtype == "I64");
  return numbers_in<int64_t>(tensor);
}

// All values of all tensors, in order of name.
inline std::vector<double> values_of(const SavedWeights& weights) {
  std::vector<double> values;
  for (const auto& [name, tensor] : weights.tensors) {
    const auto more = values_of(tensor);
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

}  // namespace lockstep::testing
