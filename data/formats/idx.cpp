#include <lockstep/data/formats/idx.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {

IdxReader::IdxReader(const std::filesystem::path& path, const IdxShape& shape, IdxHints hints)
    : IdxReader(path, std::span(&shape, 1), std::move(hints)) {}

IdxReader::IdxReader(const std::filesystem::path& path, std::span<const IdxShape> shapes, IdxHints hints)
    : path_(path.string()), hints_(std::move(hints)), source_(open_bytes(path, hints_.damaged)) {
  read_header(shapes);
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

void IdxReader::read_header(std::span<const IdxShape> shapes) {
  const size_t rank = read_rank(shapes);
  const auto& shape = *std::ranges::find(shapes, rank, [](const auto& each) { return each.row.size() + 1; });
  read_header_bytes(4 * rank);
  rows_ = dimension(0);
  if (rows_ < 1 || rows_ > shape.max_rows) {
    fail(fmt::format("declares {} rows, 1 to {} were expected", rows_, shape.max_rows));
  }
  for (size_t i = 1; i < rank; ++i) row_.push_back(dimension(i));
  check_row(shape.row);
  set_size();
}

// Returns the number of dimensions, which is that of one of the shapes.
size_t IdxReader::read_rank(std::span<const IdxShape> shapes) {
  read_header_bytes(4);
  const auto byte = [&](size_t i) { return std::to_integer<int>(header_[i]); };
  if (byte(0) != 0 || byte(1) != 0) {
    fail(fmt::format("is not an IDX file: it starts with bytes {:02x} {:02x}, 00 00 was expected", byte(0),
                     byte(1)));
  }
  if (byte(2) != 0x08) {
    refuse(fmt::format("holds values of IDX type 0x{:02x}, 0x08 (unsigned bytes) was expected", byte(2)));
  }
  std::vector<size_t> ranks;
  for (const auto& shape : shapes) ranks.push_back(shape.row.size() + 1);
  const auto rank = static_cast<size_t>(byte(3));
  if (std::ranges::find(ranks, rank) == ranks.end()) {
    refuse(fmt::format("has {} dimensions, {} were expected", rank, fmt::join(ranks, " or ")));
  }
  return rank;
}

void IdxReader::check_row(const std::vector<int64_t>& row) const {
  const auto fits = [](int64_t found, int64_t expected) {
    return expected == kAnyLength ? found >= 1 && found <= kLongest : found == expected;
  };
  if (std::ranges::equal(row_, row, fits)) return;
  std::vector<std::string> expected;
  expected.reserve(row.size());
  for (const auto length : row) {
    expected.push_back(length == kAnyLength ? fmt::format("(1 to {})", kLongest) : fmt::format("{}", length));
  }
  refuse(fmt::format("has rows of {} values, {} were expected", fmt::join(row_, " x "),
                     fmt::join(expected, " x ")));
}

// Counts the values. A header may promise more than any number holds.
void IdxReader::set_size() {
  size_ = static_cast<uint64_t>(rows_);
  bool fits = true;
  for (const auto length : row_) {
    fits = fits && !__builtin_mul_overflow(size_, static_cast<uint64_t>(length), &size_);
  }
  const auto most = source_->most_bytes();
  if (!fits)
    fail(fmt::format("is truncated: its header promises over 2^64 bytes, the file holds at most {}", most));
  if (size_ > most || header_.size() > most - size_) {
    fail(fmt::format("is truncated: its header promises {} bytes, the file holds at most {}",
                     header_.size() + size_, most));
  }
  left_ = size_;
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
