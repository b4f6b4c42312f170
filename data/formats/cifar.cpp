#include <lockstep/data/formats/cifar.h>

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include <lockstep/data/formats/byte_source.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCifarRecords = 256;  // that are read at a time

int64_t record_bytes(int label_bytes) { return label_bytes + kCifarPixels; }

std::string cifar_hint(int label_bytes) {
  return fmt::format(
      "put a whole copy of the file in its place: records of {} bytes, {} and 3 channels of 32 x 32 pixels",
      record_bytes(label_bytes), label_bytes == 1 ? "a label" : "a coarse and a fine label");
}

}  // namespace

int64_t cifar_rows(const fs::path& file, int label_bytes) {
  const auto hint = cifar_hint(label_bytes);
  const auto bytes = static_cast<int64_t>(open_plain_bytes(file, hint)->most_bytes());
  const auto record = record_bytes(label_bytes);
  if (bytes % record == 0) return bytes / record;
  throw DataError(fmt::format("{} has {} bytes, which are {} records of {} bytes and {} more", file.string(),
                              bytes, bytes / record, record, bytes % record),
                  hint);
}

void read_cifar(const fs::path& file, int label_bytes, std::span<uint8_t> images, std::span<uint8_t> labels) {
  const auto record = record_bytes(label_bytes);
  const auto rows = static_cast<int64_t>(labels.size());
  const auto source = open_plain_bytes(file, cifar_hint(label_bytes));
  std::vector<uint8_t> part(static_cast<size_t>(record * std::min(rows, kCifarRecords)));
  auto* pixels = images.data();
  for (int64_t row = 0; row < rows;) {
    const auto count = std::min(rows - row, kCifarRecords);
    const auto bytes = std::span(part).first(static_cast<size_t>(count * record));
    if (source->read(std::as_writable_bytes(bytes)) < bytes.size()) {
      throw DataError(fmt::format("{} ends before record {} of {}, it has become shorter", file.string(),
                                  row + count, rows),
                      "leave the files as they are while they are read");
    }
    for (const auto* from = bytes.data(); from < bytes.data() + bytes.size(); from += record, ++row) {
      labels[static_cast<size_t>(row)] = from[label_bytes - 1];
      pixels = std::copy_n(from + label_bytes, kCifarPixels, pixels);
    }
  }
}

}  // namespace lockstep
