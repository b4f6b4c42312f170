// A file that grows while a run lasts, and after the run's breaks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// Not thread-safe.
class GrowingFile {
 public:
  // Opens the file, or makes an empty one. Cuts it to `keep` bytes if it is longer: what lies behind belongs
  // to steps that are done again. Throws OutputError.
  GrowingFile(const std::filesystem::path& path, int64_t keep);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // Appends. When it throws OutputError, such as for a full disk, nothing has been appended.
  void write(std::string_view text);

  // Cuts the file to `size` bytes if it is longer. Throws OutputError.
  void cut(int64_t size);

  // Returns when the disk has what was written before the call. May be called while another thread writes.
  // Throws OutputError.
  void flush_to_disk() const;

  int64_t size() const { return size_; }

 private:
  [[noreturn]] void fail(int error) const;

  const std::filesystem::path path_;
  int64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace lockstep
