// Parses, checks and writes the header of the safetensors format. A file is
//
//   8 bytes   length of the header, little endian
//   header    JSON in UTF-8 from '{' on, padded with spaces:
//             {"__metadata__": {"key": "text", ...},
//              "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//   data      the tensors' values, row by row, little endian; offsets count from here, and each byte belongs
//             to exactly one tensor
//
// See https://huggingface.co/docs/safetensors and its implementation in Rust.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {

constexpr uint64_t kSafetensorsMostHeaderBytes = 100'000'000;  // the limit of the format's own reader

// In the order in which a file holds them: the widest first, so that every tensor is aligned. (The format
// also has F4, F6_E2M3 and F6_E3M2, which are narrower than a byte.)
enum class TensorDtype {
  kU64,
  kI64,
  kF64,
  kC64,
  kF32,
  kU32,
  kI32,
  kBF16,
  kF16,
  kU16,
  kI16,
  kF8E5M2Fnuz,
  kF8E4M3Fnuz,
  kF8E8M0,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kU8,
  kBool
};

struct TensorEntry {
  std::string name;
  TensorDtype dtype = {};
  std::vector<int64_t> shape = {};  // {} is a scalar, {0, 3} is empty
  uint64_t begin = 0;               // first byte of its values, from the start of the data
  uint64_t end = 0;                 // one past the last
};

using TensorMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in order of their offsets
  TensorMetadata metadata;
};

// Parses a header and checks everything that can be known without the data, which has `data_bytes` bytes.
// Throws WeightsError (`file`, what was found, what was expected). Unlike the format's own reader it also
// refuses unknown fields and shapes that no tensor can have (more than 64 dimensions; more than 2^63 - 1
// bytes when dimensions of 0 are left out).
SafetensorsHeader parse_safetensors_header(const std::string& header, uint64_t data_bytes,
                                           const std::string& file);

struct SafetensorsLayout {
  std::string head;           // start of the file: length, header, padding to a multiple of 8 bytes
  std::vector<size_t> order;  // indices of the tensors in the order in which their values follow
};

// Returns the start of a file of these tensors, with the same bytes as the format's own writer. Ignores their
// begin and end. Throws OutputError for a file that could not be read: a name twice, "__metadata__" as a
// name, texts that are not UTF-8, a shape or a header beyond the limits.
SafetensorsLayout lay_out_safetensors(std::span<const TensorEntry> tensors, const TensorMetadata& metadata);

// The error for a damaged file: "FILE WHAT", and a hint.
WeightsError safetensors_error(const std::string& file, const std::string& what);

}  // namespace lockstep
