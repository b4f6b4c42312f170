#include <lockstep/data/formats/idx.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cassert>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {

IdxReader::IdxReader(const std::filesystem::path& path, const IdxShape& shape, IdxHints hints)
    : path_(path.string()), hints_(std::move(hints)), source_(open_bytes(path, hints_.damaged)) {
  read_header(shape);
}

void IdxReader::read(std::span<std::byte> into) {
  assert(into.size() <= left_);
  const size_t count = source_->read(into);
  if (count < into.size()) {
    const uint64_t found = size_ - left_ + count;
    fail(fmt::format("is truncated: it holds {} bytes of values, {} were expected", found, size_));
  }
  left_ -= count;
  std::array<std::byte, 1> beyond;
  if (left_ == 0 && source_->read(beyond) != 0) {
    fail(fmt::format("goes on after the {} bytes of values that its header promises", size_));
  }
}

void IdxReader::read_header(const IdxShape& shape) {
  read_header_bytes(4);
  const auto byte = [&](size_t i) { return std::to_integer<int>(header_[i]); };
  if (byte(0) != 0 || byte(1) != 0) {
    fail(fmt::format("is not an IDX file: it starts with bytes {:02x} {:02x}, 00 00 was expected", byte(0),
                     byte(1)));
  }
  if (byte(2) != 0x08) {
    refuse(fmt::format("holds values of IDX type 0x{:02x}, 0x08 (unsigned bytes) was expected", byte(2)));
  }
  const size_t rank = shape.row.size() + 1;
  if (byte(3) != static_cast<int>(rank)) {
    refuse(fmt::format("has {} dimensions, {} were expected", byte(3), rank));
  }

  read_header_bytes(4 * rank);
  rows_ = dimension(0);
  if (rows_ < 1 || rows_ > shape.max_rows) {
    fail(fmt::format("declares {} rows, 1 to {} were expected", rows_, shape.max_rows));
  }
  size_ = static_cast<uint64_t>(rows_);
  check_row(shape.row);
  for (const auto length : shape.row) size_ *= static_cast<uint64_t>(length);
  if (header_.size() + size_ > source_->most_bytes()) {
    fail(fmt::format("is truncated: its header promises {} bytes, the file holds at most {}",
                     header_.size() + size_, source_->most_bytes()));
  }
  left_ = size_;
}

void IdxReader::check_row(const std::vector<int64_t>& row) const {
  std::vector<int64_t> found;
  for (size_t i = 1; i <= row.size(); ++i) found.push_back(dimension(i));
  if (found == row) return;
  refuse(
      fmt::format("has rows of {} values, {} were expected", fmt::join(found, " x "), fmt::join(row, " x ")));
}

void IdxReader::read_header_bytes(size_t count) {
  const size_t before = header_.size();
  header_.resize(before + count);
  const size_t found = before + source_->read(std::span(header_).subspan(before));
  if (found < header_.size()) {
    fail(fmt::format("is truncated: its header has {} bytes, {} were expected", found, header_.size()));
  }
}

uint32_t IdxReader::dimension(size_t i) const {
  uint32_t value = 0;
  for (size_t k = 4 + 4 * i; k < 8 + 4 * i; ++k) value = value << 8 | std::to_integer<uint32_t>(header_[k]);
  return value;
}

void IdxReader::fail(const std::string& what) const { throw DataError(path_ + " " + what, hints_.damaged); }

void IdxReader::refuse(const std::string& what) const { throw DataError(path_ + " " + what, hints_.unfit); }

}  // namespace lockstep
