#include <lockstep/data/formats/byte_source.h>

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

// An open regular file. Its functions throw DataError.
class File {
 public:
  File(const std::filesystem::path& path, const std::string& hint) : path_(path.string()), hint_(hint) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) fail(fmt::format("cannot be read: {}", error.message()));
    // Before opening, since opening a pipe waits for its writer.
    if (!std::filesystem::is_regular_file(status)) fail("is not a regular file");
    stream_.reset(std::fopen(path_.c_str(), "rb"));
    if (!stream_) fail(fmt::format("cannot be opened: {}", errno_text(errno)));
    std::setvbuf(stream_.get(), nullptr, _IONBF, 0);  // no buffer: reads are large
    size_ = std::filesystem::file_size(path, error);
    if (error) fail(fmt::format("cannot be read: {}", error.message()));
    if (size_ == 0) fail("is empty");
  }

  size_t read(std::span<std::byte> into) {
    const size_t count = std::fread(into.data(), 1, into.size(), stream_.get());
    if (std::ferror(stream_.get())) fail(fmt::format("cannot be read: {}", errno_text(errno)));
    return count;
  }

  void rewind() { std::rewind(stream_.get()); }
  uint64_t size() const { return size_; }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_ + " " + what, hint_); }

 private:
  struct Close {
    void operator()(std::FILE* stream) const { std::fclose(stream); }
  };

  std::string path_, hint_;
  std::unique_ptr<std::FILE, Close> stream_;
  uint64_t size_ = 0;
};

class PlainBytes : public ByteSource {
 public:
  explicit PlainBytes(File file) : file_(std::move(file)) {}

  size_t read(std::span<std::byte> into) override { return file_.read(into); }
  uint64_t most_bytes() const override { return file_.size(); }

 private:
  File file_;
};

class GzipBytes : public ByteSource {
 public:
  explicit GzipBytes(File file) : file_(std::move(file)), packed_(kBufferBytes) {
    constexpr int kGzipWrapper = 16;
    if (inflateInit2(&zlib_, MAX_WBITS + kGzipWrapper) != Z_OK) throw std::bad_alloc();
  }
  ~GzipBytes() override { inflateEnd(&zlib_); }
  GzipBytes(const GzipBytes&) = delete;  // zlib's state points back at zlib_
  GzipBytes& operator=(const GzipBytes&) = delete;

  size_t read(std::span<std::byte> into) override {
    size_t count = 0;
    while (count < into.size() && !ended_) count += inflate_some(into.subspan(count));
    return count;
  }

  // Deflate's densest code spends 2 bits on 258 bytes.
  uint64_t most_bytes() const override { return file_.size() * 1032; }

 private:
  static constexpr size_t kBufferBytes = 256 * 1024;
  static constexpr Bytef kFirstByte = 0x1f;       // of a member
  static constexpr size_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits

  size_t inflate_some(std::span<std::byte> into) {
    if (zlib_.avail_in == 0) refill();
    const size_t room = std::min(into.size(), kMostAtOnce);
    zlib_.next_out = reinterpret_cast<Bytef*>(into.data());
    zlib_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END) {
      file_.fail(fmt::format("is damaged: its gzip data breaks off after {} bytes unpacked (zlib: {})",
                             unpacked_ + zlib_.total_out, zlib_.msg ? zlib_.msg : zError(result)));
    }
    const size_t count = room - zlib_.avail_out;
    if (result == Z_STREAM_END) end_member();
    return count;
  }

  void refill() {
    zlib_.avail_in = static_cast<uInt>(file_.read(packed_));
    zlib_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    if (zlib_.avail_in == 0) {
      file_.fail(fmt::format("is truncated: its {} bytes end in the middle of the gzip data", file_.size()));
    }
  }

  void end_member() {
    taken_ += zlib_.total_in;
    unpacked_ += zlib_.total_out;
    const uint64_t left = file_.size() - taken_;
    ended_ = left == 0;
    if (ended_) return;
    if (zlib_.avail_in == 0) refill();
    if (*zlib_.next_in != kFirstByte) {
      file_.fail(fmt::format("has {} bytes after its gzip data, 0 were expected", left));
    }
    inflateReset(&zlib_);  // the next member, whose header it checks
  }

  File file_;
  std::vector<std::byte> packed_;
  z_stream zlib_ = {};
  uint64_t taken_ = 0, unpacked_ = 0;  // bytes of the members before this one
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path, const std::string& hint) {
  File file(path, hint);
  std::array<std::byte, 2> first = {};
  file.read(first);
  file.rewind();
  constexpr std::array<std::byte, 2> kGzip = {std::byte{0x1f}, std::byte{0x8b}};
  if (first == kGzip) return std::make_unique<GzipBytes>(std::move(file));
  return std::make_unique<PlainBytes>(std::move(file));
}

std::unique_ptr<ByteSource> open_plain_bytes(const std::filesystem::path& path, const std::string& hint) {
  return std::make_unique<PlainBytes>(File(path, hint));
}

}  // namespace lockstep
