// The files of tests/reference/images.json and the pixels that Pillow reads from them.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/tests/support/reference.h>

namespace lockstep::testing {

inline const nlohmann::json& image_reference() {
  static const auto& cases = *new nlohmann::json(reference("images.json"));
  return cases;
}

inline std::vector<uint8_t> bytes_of(const std::string& digits) {
  std::vector<uint8_t> bytes(digits.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, bytes[i], 16);
  }
  return bytes;
}

inline std::vector<uint8_t> image_file(const std::string& name) {
  return bytes_of(image_reference()["files"][name]);
}

}  // namespace lockstep::testing
