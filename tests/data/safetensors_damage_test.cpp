// Safetensors files that are damaged, cut or cannot be read.
#include <sys/stat.h>

#include <lockstep/tests/catch.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/safetensors_files.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

TEST_CASE("a file cut or lengthened anywhere is an error") {
  const TempFolder folder;
  const auto whole = read_file(kReference + ".safetensors");
  write_file(folder / "file", whole + '\0');
  CHECK_THAT(failure(folder / "file"), ContainsSubstring("has 233 bytes of data, its tensors take 232"));
  fs::resize_file(folder / "file", whole.size());
  CHECK(load_safetensors(folder / "file").tensors.size() == 14);
  for (size_t size = whole.size(); size-- > 0;) {
    INFO(size << " of " << whole.size() << " bytes");
    fs::resize_file(folder / "file", size);
    CHECK_THAT(failure(folder / "file"), ContainsSubstring("truncated"));
  }
}

TEST_CASE("a changed byte before the data is an error or another valid file") {
  const TempFolder folder;
  const auto whole = read_file(kReference + ".safetensors");
  const size_t data = whole.size() - 232;
  write_file(folder / "file", whole);
  std::fstream file(folder / "file", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  size_t read = 0, refused = 0;
  for (size_t at = 0; at < data; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      put(at, whole[at] ^ 1 << bit);
      try {
        read += load_safetensors(folder / "file").tensors.size() == 14;
      } catch (const WeightsError&) {
        ++refused;
      }
    }
    put(at, whole[at]);
  }
  REQUIRE(file.good());
  CHECK(read + refused == data * 8);
  CHECK(read > 0);  // for example another letter in a name
}

TEST_CASE("the length of the header is checked against the file and a limit") {
  const TempFolder folder;
  const auto with_length = [&](uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i);
    write_file(folder / "file", bytes + "{}");
    return folder / "file";
  };
  CHECK(load_safetensors(with_length(2)).tensors.empty());
  CHECK_THAT(failure(with_length(3)), ContainsSubstring("promises a header of 3 bytes and has 2 more"));
  CHECK_THAT(failure(with_length(100'000'000)),
             ContainsSubstring("header of 100000000 bytes and has 2 more"));
  CHECK_THAT(failure(with_length(100'000'001)),
             ContainsSubstring("100000001 bytes, at most 100000000 were expected"));
  CHECK_THAT(failure(with_length(UINT64_MAX)), ContainsSubstring("18446744073709551615 bytes, at most"));
  CHECK_THAT(failure(with_length(0)), ContainsSubstring("begins with nothing"));
  write_file(folder / "file", "PK\x03\x04 an archive of torch.save");
  CHECK_THAT(failure(folder / "file"), ContainsSubstring("is not a safetensors file"));
}

TEST_CASE("a BOOL that is neither 0 nor 1 is an error") {
  const TempFolder folder;
  auto bytes = read_file(kReference + ".safetensors");
  bytes.back() = 2;
  write_file(folder / "file", bytes);
  CHECK_THAT(failure(folder / "file"), ContainsSubstring("BOOL"));
}

TEST_CASE("a file that cannot be read is an error") {
  const TempFolder folder;
  CHECK_THAT(failure(folder / "nowhere"), ContainsSubstring("No such file"));
  CHECK_THAT(failure(folder.path()), ContainsSubstring("not a regular file"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(failure(folder / "pipe"), ContainsSubstring("not a regular file"));
  CHECK_THAT(failure("/dev/zero"), ContainsSubstring("not a regular file"));
  // The system reports 4096 bytes and returns 2, as for a file that is cut after it was opened.
  const fs::path cut = "/sys/kernel/fscaps";
  if (fs::exists(cut)) CHECK_THAT(failure(cut), ContainsSubstring("to 2 bytes while it was read"));
}
