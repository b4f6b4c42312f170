// Fuzzes IDX files, plain and gzipped. Each input is read as it is, and gzipped by the harness, because
// mutated gzip files almost always have a wrong checksum. Both must give the same.
#include <zlib.h>

#include <cstring>
#include <optional>
#include <vector>

#include <lockstep/data/formats/idx.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

constexpr int64_t kMostRows = 100'000;
constexpr int kGzipWrapper = 16;

// Reads the whole file in steps that differ from the reader's own. Empty if the file is refused.
std::optional<std::string> read_idx(std::string_view bytes, const std::vector<int64_t>& row) {
  const fuzz::MemoryFile file(bytes);
  std::string whole;
  const bool taken = fuzz::accepted_within_memory(bytes.size(), [&] {
    IdxReader reader(file.path(), {row, kMostRows}, {"damaged", "unfit"});
    uint64_t values = static_cast<uint64_t>(reader.rows());
    for (const int64_t length : row) values *= static_cast<uint64_t>(length);
    require(reader.rows() >= 1 && reader.rows() <= kMostRows, "rows are within the limit");
    require(reader.bytes_left() == values, "as many values as the shape has");
    whole.assign(reinterpret_cast<const char*>(reader.header().data()), reader.header().size());
    std::vector<std::byte> part;
    while (reader.bytes_left() > 0) {
      part.resize(std::min<uint64_t>(reader.bytes_left(), 1000));
      reader.read(part);
      whole.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
  });
  return taken ? std::optional(whole) : std::nullopt;
}

std::string packed(std::string_view bytes) {
  z_stream zlib = {};
  require(deflateInit2(&zlib, 1, Z_DEFLATED, MAX_WBITS + kGzipWrapper, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib starts");
  std::string out(deflateBound(&zlib, bytes.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  require(deflate(&zlib, Z_FINISH) == Z_STREAM_END, "zlib packs");
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}

// Decompresses the gzip members, the last of which ends at the last byte, each with one call of zlib.
std::string unpacked(std::string_view bytes, size_t size) {
  z_stream zlib = {};
  require(inflateInit2(&zlib, MAX_WBITS + kGzipWrapper) == Z_OK, "zlib starts");
  std::string out(size + 1, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  int result = inflate(&zlib, Z_FINISH);
  while (result == Z_STREAM_END && zlib.avail_in > 0 && inflateReset(&zlib) == Z_OK) {
    result = inflate(&zlib, Z_FINISH);
  }
  out.resize(out.size() - zlib.avail_out);
  inflateEnd(&zlib);
  require(result == Z_STREAM_END && zlib.avail_in == 0, "zlib takes what the reader has taken");
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  const bool gzipped = bytes.starts_with("\x1f\x8b");
  for (const auto& row : {std::vector<int64_t>{}, {2, 3}}) {
    const auto whole = read_idx(bytes, row);
    if (whole) {
      require(*whole == (gzipped ? unpacked(bytes, whole->size()) : bytes), "the reader hands out the file");
    }
    const auto outcome = fuzz::last_outcome;
    if (!gzipped && !bytes.empty()) require(read_idx(packed(bytes), row) == whole, "gzipped as plain");
    fuzz::last_outcome = outcome;
    if (whole) break;
  }
  return 0;
}
