#include <lockstep/tests/catch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/formats/idx.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/gzip_bytes.h>
#include <lockstep/tests/data/idx_bytes.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const IdxShape kShape = {{2, 3}, /*max_rows=*/1000};
const IdxHints kHints = {.damaged = "replace it", .unfit = "convert it"};

Bytes counting(size_t size) {
  Bytes values(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<uint8_t>(i * 37);
  return values;
}

const Bytes kValues = counting(4 * 2 * 3);
const Bytes kFile = idx_bytes({4, 2, 3}, kValues);

Bytes read_all(const std::filesystem::path& path, const IdxShape& shape = kShape) {
  IdxReader reader(path, shape, kHints);
  Bytes values(reader.bytes_left());
  reader.read(std::as_writable_bytes(std::span(values)));
  return values;
}

// Returns whether the message is about a whole file of other values.
bool unfit(const std::string& message) {
  for (const char* words : {"of IDX type", "dimensions", "rows of"}) {
    if (message.find(words) != std::string::npos) return true;
  }
  return false;
}

// Returns the message of the DataError that reading throws. It must name the file and carry the right hint.
std::string failure(const std::filesystem::path& path, const IdxShape& shape = kShape) {
  try {
    read_all(path, shape);
  } catch (const DataError& error) {
    CHECK_THAT(error.message(), ContainsSubstring(path.string()));
    CHECK(error.hint() == (unfit(error.message()) ? "convert it" : "replace it"));
    return error.message();
  }
  FAIL("no DataError");
  return {};
}

// The message for a file with these bytes, plain or gzipped.
std::string failure_of(const TempFolder& folder, const Bytes& bytes, bool gzip = false) {
  const auto path = folder / "values-idx3-ubyte";
  write_bytes(path, gzip ? gzipped(bytes) : bytes);
  return failure(path);
}

Bytes with_byte(Bytes bytes, size_t at, uint8_t value) {
  bytes.at(at) = value;
  return bytes;
}

}  // namespace

TEST_CASE("IdxReader reads plain and gzipped files of any name") {
  const TempFolder folder;
  for (const bool gzip : {false, true}) {
    for (const char* name : {"values", "values.gz"}) {
      INFO(name << (gzip ? " gzipped" : " plain"));
      write_bytes(folder / name, gzip ? gzipped(kFile) : kFile);
      IdxReader reader(folder / name, kShape, kHints);
      CHECK(reader.rows() == 4);
      CHECK(reader.bytes_left() == 24);
      const auto header = std::as_bytes(std::span(kFile).first(16));
      CHECK(std::equal(header.begin(), header.end(), reader.header().begin(), reader.header().end()));
      CHECK(read_all(folder / name) == kValues);
    }
  }
}

TEST_CASE("IdxReader can be read in parts") {
  const TempFolder folder;
  const Bytes values = counting(1'000'000);  // more than any buffer holds
  const auto path = folder / "labels";
  for (const bool gzip : {false, true}) {
    const Bytes file = idx_bytes({1'000'000}, values);
    write_bytes(path, gzip ? gzipped(file) : file);
    IdxReader reader(path, {{}, 1'000'000}, kHints);
    Bytes found;
    for (size_t part = 1; reader.bytes_left() > 0; part *= 3) {
      Bytes some(std::min<uint64_t>(part, reader.bytes_left()));
      reader.read(std::as_writable_bytes(std::span(some)));
      found.insert(found.end(), some.begin(), some.end());
    }
    CHECK(found == values);
  }
}

TEST_CASE("a file cut anywhere is an error that names it") {
  const TempFolder folder;
  for (const Bytes& whole : {kFile, gzipped(kFile)}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      INFO(size << " of " << whole.size() << " bytes");
      write_bytes(folder / "cut", Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)));
      const std::string message = failure(folder / "cut");
      if (size == 0) CHECK_THAT(message, ContainsSubstring("is empty"));
      if (size > 0) CHECK_THAT(message, ContainsSubstring("truncated"));
    }
  }
}

TEST_CASE("each wrong field of the header is named with what was expected") {
  const TempFolder folder;
  for (const bool gzip : {false, true}) {
    INFO((gzip ? "gzipped" : "plain"));
    const auto message = [&](size_t at, uint8_t value) {
      return failure_of(folder, with_byte(kFile, at, value), gzip);
    };
    CHECK_THAT(message(0, 0x50), ContainsSubstring("not an IDX file") && ContainsSubstring("50 00") &&
                                     ContainsSubstring("00 00"));
    CHECK_THAT(message(1, 0x4b), ContainsSubstring("not an IDX file") && ContainsSubstring("00 4b"));
    CHECK_THAT(message(2, 0x0d), ContainsSubstring("0x0d") && ContainsSubstring("0x08"));
    CHECK_THAT(message(3, 1), ContainsSubstring("1 dimensions, 3 were expected"));
    CHECK_THAT(message(7, 0), ContainsSubstring("0 rows, 1 to 1000 were expected"));
    CHECK_THAT(message(4, 0xff), ContainsSubstring("4278190084 rows, 1 to 1000"));
    CHECK_THAT(message(7, 5), ContainsSubstring("truncated"));
    CHECK_THAT(message(7, 3), ContainsSubstring("goes on after the 18 bytes"));
    CHECK_THAT(message(11, 9), ContainsSubstring("has rows of 9 x 3 values, 2 x 3 were expected"));
    CHECK_THAT(message(12, 0x80),
               ContainsSubstring("has rows of 2 x 2147483651 values, 2 x 3 were expected"));
  }
}

TEST_CASE("bytes after the end are an error") {
  const TempFolder folder;
  Bytes longer = kFile;
  longer.push_back(0);
  CHECK_THAT(failure_of(folder, longer), ContainsSubstring("goes on after the 24 bytes"));
  CHECK_THAT(failure_of(folder, longer, /*gzip=*/true), ContainsSubstring("goes on after the 24 bytes"));

  const Bytes member = gzipped(kFile);
  Bytes trailing = member;
  trailing.insert(trailing.end(), {'x', 'y'});
  CHECK_THAT(failure_of(folder, trailing), ContainsSubstring("2 bytes after its gzip data"));
}

TEST_CASE("gzipped data of several members are read as one text") {
  const TempFolder folder;
  const auto path = folder / "values";
  for (size_t cut = 0; cut <= kFile.size(); ++cut) {  // a member may be empty, and end within the header
    const auto middle = kFile.begin() + static_cast<ptrdiff_t>(cut);
    Bytes packed = gzipped({kFile.begin(), middle});
    const size_t first = packed.size();
    const Bytes second = gzipped({middle, kFile.end()});
    packed.insert(packed.end(), second.begin(), second.end());
    INFO("members of " << first << " and " << second.size() << " bytes, cut at " << cut);
    write_bytes(path, packed);
    CHECK(read_all(path) == kValues);

    Bytes damaged = packed;
    damaged[first - 8] ^= 1;  // of the first member's CRC-32
    write_bytes(path, damaged);
    CHECK_THAT(failure(path), ContainsSubstring("incorrect data check"));
    damaged = packed;
    damaged[packed.size() - 8] ^= 1;
    write_bytes(path, damaged);
    CHECK_THAT(failure(path),
               ContainsSubstring("incorrect data check") && ContainsSubstring("after 40 bytes unpacked"));
    write_bytes(path, {packed.begin(), packed.end() - 1});
    CHECK_THAT(failure(path), ContainsSubstring("truncated"));
    packed.insert(packed.end(), {'x', 'y'});
    write_bytes(path, packed);
    CHECK_THAT(failure(path), ContainsSubstring("2 bytes after its gzip data"));
  }

  Bytes many;  // more members than fit into the reader's buffer, one for each byte
  const Bytes values = counting(20'000);
  for (const uint8_t byte : idx_bytes({20'000}, values)) {
    const Bytes member = gzipped({byte});
    many.insert(many.end(), member.begin(), member.end());
  }
  REQUIRE(many.size() > 400'000);
  write_bytes(path, many);
  CHECK(read_all(path, {{}, 20'000}) == values);
  many.insert(many.end(), {0x1f, 0x00});
  write_bytes(path, many);
  CHECK_THAT(failure(path, {{}, 20'000}), ContainsSubstring("damaged"));
}

TEST_CASE("a wrong byte anywhere in gzipped values, checksum or length is an error") {
  const TempFolder folder;
  const Bytes whole = gzipped(kFile);
  const size_t trailer = whole.size() - 8;  // CRC-32 and length, 4 bytes each
  for (size_t at = 10; at < whole.size(); ++at) {
    if (at == trailer - 1) continue;  // its upper bits may be padding
    INFO("byte " << at << " of " << whole.size());
    const std::string message = failure_of(folder, with_byte(whole, at, whole[at] ^ 0x10));
    if (at >= trailer)
      CHECK_THAT(message, ContainsSubstring("damaged") && ContainsSubstring("after 40 bytes"));
    if (at >= trailer)
      CHECK_THAT(message,
                 ContainsSubstring(at < trailer + 4 ? "incorrect data check" : "incorrect length check"));
  }
}

TEST_CASE("a decompression bomb stops at the declared size") {
  const TempFolder folder;
  const Bytes bomb = idx_bytes({4, 2, 3}, Bytes(16 << 20));
  Bytes packed = gzipped(bomb);
  // Damaged near its end: a reader that unpacks more than the header declares would find that first.
  packed[packed.size() - 100] ^= 0xff;
  CHECK_THAT(failure_of(folder, packed), ContainsSubstring("goes on after the 24 bytes"));
}

TEST_CASE("a header that declares more than the file can hold is refused before memory is allocated") {
  const TempFolder folder;
  const IdxShape images = {{28, 28}, /*max_rows=*/1'000'000};
  const Bytes hostile = idx_bytes({1'000'000, 28, 28}, Bytes(100));
  for (const bool gzip : {false, true}) {
    write_bytes(folder / "hostile", gzip ? gzipped(hostile) : hostile);
    CHECK_THROWS_WITH(IdxReader(folder / "hostile", images, kHints),
                      ContainsSubstring("promises 784000016 bytes"));
  }
}

TEST_CASE("a missing file, a folder, a pipe and other contents are errors") {
  const TempFolder folder;
  CHECK_THAT(failure(folder / "nowhere"), ContainsSubstring("No such file"));
  CHECK_THAT(failure(folder.path()), ContainsSubstring("not a regular file"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(failure(folder / "pipe"), ContainsSubstring("not a regular file"));
  std::filesystem::create_symlink(folder / "nowhere", folder / "dangling");
  CHECK_THAT(failure(folder / "dangling"), ContainsSubstring("No such file"));
  CHECK_THAT(failure_of(folder, {'h', 'e', 'l', 'l', 'o'}), ContainsSubstring("not an IDX file"));
}

TEST_CASE("a file that may not be read is an error") {
  const TempFolder folder;
  write_bytes(folder / "secret", kFile);
  std::filesystem::permissions(folder / "secret", std::filesystem::perms::none);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const uid_t user = geteuid();
  constexpr uid_t kNobody = 65534;  // root may read every file
  if (user == 0 && seteuid(kNobody) != 0) SKIP_CASE("cannot give up the rights of root");
  const std::string message = failure(folder / "secret");
  CHECK(seteuid(user) == 0);
  CHECK_THAT(message, ContainsSubstring("Permission denied"));
}

TEST_CASE("a file has one of several shapes, in which a length may be any") {
  const TempFolder folder;
  const std::vector<IdxShape> shapes = {{{kAnyLength, 3}, 1000}, {{}, 1000}};
  for (const auto& [dimensions, row] : std::vector<std::pair<std::vector<uint32_t>, std::vector<int64_t>>>{
           {{4, 2, 3}, {2, 3}}, {{2, 4, 3}, {4, 3}}, {{24}, {}}}) {
    write_bytes(folder / "some", idx_bytes(dimensions, kValues));
    const IdxReader reader(folder / "some", shapes, kHints);
    CHECK(reader.row() == row);
    CHECK(reader.rows() == dimensions[0]);
    CHECK(reader.bytes_left() == 24);
  }
  for (const auto& [dimensions, words] : std::vector<std::pair<std::vector<uint32_t>, const char*>>{
           {{4, 6}, "has 2 dimensions, 3 or 1 were expected"},
           {{4, 0, 3}, "rows of 0 x 3 values, (1 to 65535) x 3 were expected"},
           {{4, 65'536, 3}, "rows of 65536 x 3 values, (1 to 65535) x 3 were expected"},
           {{4, 2, 2}, "rows of 2 x 2 values"},
           {{1000, 60'000, 3}, "promises 180000016 bytes"}}) {
    write_bytes(folder / "some", idx_bytes(dimensions, kValues));
    CHECK_THAT(refusal_of<DataError>([&] { IdxReader(folder / "some", shapes, kHints); }),
               ContainsSubstring(words));
  }
}

TEST_CASE("a header that promises more than 2^64 bytes is an error") {
  const TempFolder folder;
  write_bytes(folder / "some", idx_bytes({10'000'000, 65'535, 65'535, 65'535}, kValues));
  const IdxShape any{{kAnyLength, kAnyLength, kAnyLength}, 10'000'000};
  CHECK_THAT(refusal_of<DataError>([&] { IdxReader(folder / "some", any, kHints); }),
             ContainsSubstring("promises over 2^64 bytes"));
}
