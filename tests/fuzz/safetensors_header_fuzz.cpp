// Fuzzes the header of a safetensors file. An input is the number of data bytes after the header (8 bytes,
// little endian), then the header. So inputs can state lengths that no test file has.
#include <algorithm>
#include <cstring>

#include <lockstep/data/formats/safetensors_header.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

// A header that was read can be written and gives the same when read back.
void check_round_trip(const SafetensorsHeader& read, uint64_t data_bytes) {
  const auto layout = lay_out_safetensors(read.tensors, read.metadata);
  uint64_t length = 0;
  require(layout.head.size() >= 8, "a file begins with 8 bytes of length");
  std::memcpy(&length, layout.head.data(), sizeof(length));
  require(layout.head.size() == 8 + length && length % 8 == 0,
          "the length is the header's, in whole 8 bytes");
  const auto again = parse_safetensors_header(layout.head.substr(8), data_bytes, "what was written");
  require(again.metadata == read.metadata, "metadata comes back");
  require(again.tensors.size() == read.tensors.size(), "all tensors come back");
  // Both are sorted by offset; lockstep's has the widest values first.
  auto names = read.tensors;
  std::ranges::sort(names, {}, &TensorEntry::name);
  for (const auto& tensor : again.tensors) {
    const auto same = std::ranges::lower_bound(names, tensor.name, {}, &TensorEntry::name);
    require(same != names.end() && same->name == tensor.name && same->dtype == tensor.dtype &&
                same->shape == tensor.shape && same->end - same->begin == tensor.end - tensor.begin,
            "each tensor comes back");
  }
}

void check_offsets(const SafetensorsHeader& header, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const auto& tensor : header.tensors) {
    require(tensor.begin == end && tensor.end >= end, "tensors follow one another");
    end = tensor.end;
  }
  require(end == data_bytes, "tensors take all of the data");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t data_bytes = 0;
  if (size < sizeof(data_bytes)) return 0;
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  const auto text = fuzz::text_of(data + sizeof(data_bytes), size - sizeof(data_bytes));
  SafetensorsHeader header;
  if (!fuzz::accepted([&] { header = parse_safetensors_header(text, data_bytes, "input"); })) return 0;
  check_offsets(header, data_bytes);
  check_round_trip(header, data_bytes);
  return 0;
}
