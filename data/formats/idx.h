// IDX, the format of the MNIST family: 2 zero bytes, a type, a rank, that many 32-bit big-endian dimensions,
// the values. Gzipped files are read, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/data/formats/byte_source.h>

namespace lockstep {

// The expected shape of a file of unsigned bytes. The limit on rows keeps a damaged header from making the
// caller allocate too much memory.
struct IdxShape {
  std::vector<int64_t> row;  // dimensions after the first: {28, 28} for an image, {} for a label
  int64_t max_rows;
};

// In a row: any length from 1 to kLongest.
inline constexpr int64_t kAnyLength = 0;
inline constexpr int64_t kLongest = 65'535;

// The hints of its errors.
struct IdxHints {
  std::string damaged;  // about a file that is broken
  std::string unfit;    // about one whose values have another type or shape
};

// Opens a file, checks its header and reads its values. Every problem throws DataError with the file's name,
// what was found, what was expected, and a hint.
class IdxReader {
 public:
  IdxReader(const std::filesystem::path& path, const IdxShape& shape, IdxHints hints);

  // A file has one of these shapes, which differ in their number of dimensions.
  IdxReader(const std::filesystem::path& path, std::span<const IdxShape> shapes, IdxHints hints);

  int64_t rows() const { return rows_; }                         // at least 1
  const std::vector<int64_t>& row() const { return row_; }       // lengths after the first
  uint64_t bytes_left() const { return left_; }                  // values not read yet
  std::span<const std::byte> header() const { return header_; }  // as it stands in the file

  // Reads the next into.size() values, at most bytes_left(). After the last one it checks the end: no byte
  // may follow, and a gzip checksum must be right.
  void read(std::span<std::byte> into);

 private:
  void read_header(std::span<const IdxShape> shapes);
  size_t read_rank(std::span<const IdxShape> shapes);
  void read_header_bytes(size_t count);
  void check_row(const std::vector<int64_t>& row) const;
  void set_size();
  uint32_t dimension(size_t i) const;
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void refuse(const std::string& what) const;  // an unfit file

  std::string path_;
  IdxHints hints_;
  std::unique_ptr<ByteSource> source_;
  std::vector<std::byte> header_;
  int64_t rows_ = 0;
  std::vector<int64_t> row_;
  uint64_t size_ = 0;  // values in the file
  uint64_t left_ = 0;  // values not read yet
};

}  // namespace lockstep
