// Headers of the safetensors format as texts, and what parsing bad ones throws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/data/formats/safetensors_header.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/catch.h>

namespace lockstep::testing {

inline const std::string kName = "folder/some.safetensors";

// Returns the message of the WeightsError that parsing throws. It must begin with the file's name and carry a
// hint.
inline std::string failure(const std::string& header, uint64_t data_bytes) {
  try {
    parse_safetensors_header(header, data_bytes, kName);
  } catch (const WeightsError& error) {
    CHECK_THAT(error.message(), Catch::Matchers::StartsWith(kName + " "));
    CHECK(error.exit_code() == ExitCode::kWeights);
    CHECK_FALSE(error.hint().empty());
    return error.message();
  }
  FAIL("no WeightsError");
  return {};
}

// The body of a tensor, and headers of one or two of them.
inline std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
inline std::string header(const std::string& x) { return R"({"x":)" + x + "}"; }
inline std::string header(const std::string& x, const std::string& y) {
  return R"({"x":)" + x + R"(,"y":)" + y + "}";
}
inline std::string f32(const std::string& shape, const std::string& offsets) {
  return tensor(R"("F32")", shape, offsets);
}

// A header, and what its error says.
struct Bad {
  std::string header;
  std::string message;  // a part of it
  uint64_t data_bytes = 24;
};

inline void check_each(const std::vector<Bad>& bads) {
  for (const auto& [text, message, data_bytes] : bads) {
    INFO(text.substr(0, 200));
    CHECK_THAT(failure(text, data_bytes), Catch::Matchers::ContainsSubstring(message));
  }
}

}  // namespace lockstep::testing
