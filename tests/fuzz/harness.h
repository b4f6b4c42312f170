// Helpers of the harnesses. Each harness defines LLVMFuzzerTestOneInput(), as for libFuzzer, and passes the
// bytes to lockstep's code. The code may refuse an input with one of lockstep's errors. Any other exception,
// and any violated promise of the code, ends the program.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <lockstep/support/error.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

// The outcome of the last input, as text. The driver keeps inputs with a new outcome.
inline std::string last_outcome;

// Returns true if the code accepted the input.
template <class Code>
bool accepted(Code code) {
  try {
    code();
  } catch (const Error& error) {
    last_outcome = error.message();
    return false;
  }
  last_outcome = "accepted";
  return true;
}

inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "this does not hold: %s\n", promise);
  std::abort();
}

inline std::string text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A regular file in memory, for code that takes a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    require(file_ >= 0 && write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "a file in memory can be written");
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace lockstep::fuzz
