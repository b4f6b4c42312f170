#include <lockstep/tests/catch.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <lockstep/models/program/archive.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/models/program/zip_builder.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using program::Archive;

namespace {

std::string refusal_of_file(const std::string& bytes) {
  const TempFolder folder;
  write_file(folder / "net.pt2", bytes);
  return refusal_of<WeightsError>([&] { const Archive archive(folder / "net.pt2"); });
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("An archive gives its records without their root folder") {
  const TempFolder folder;
  for (const bool wide : {false, true}) {
    INFO((wide ? "zip64" : "zip"));
    const std::vector<ZipRecord> records{
        {.name = "net/a", .bytes = "first", .wide = wide, .sizes_follow = true},
        {.name = "net/b/c", .bytes = "", .wide = wide, .extra = "FB\2" + std::string("\0ZZ", 3)},
        {.name = "net/d", .bytes = "third", .wide = wide}};
    write_file(folder / "net.pt2", zip_of(records, {.wide = wide, .comment = wide ? "" : "a comment"}));
    const Archive archive(folder / "net.pt2");
    CHECK(archive.root() == "net");
    REQUIRE(archive.records().size() == 3);
    CHECK(archive.records()[1].name == "b/c");
    CHECK(archive.text("a") == "first");
    CHECK(archive.text("b/c").empty());
    CHECK(archive.text("d") == "third");
    CHECK(archive.records()[2].crc32 == crc_of("third"));
    CHECK(archive.has("d"));
    CHECK_FALSE(archive.has("net/d"));
    CHECK(refusal_of<WeightsError>([&] { (void)archive.bytes("e"); }).find("has no record 'e'") !=
          std::string::npos);
  }
}

TEST_CASE("A damaged archive is refused with what is wrong") {
  struct Case {
    std::string words;
    std::vector<ZipRecord> records;
    ZipEnd end = {};
  };
  const ZipRecord plain{.name = "net/a", .bytes = "12345"};
  const auto changed = [&](auto change) {
    auto record = plain;
    change(record);
    return std::vector<ZipRecord>{record};
  };
  const Case cases[] = {
      {"has a record 'a' that is in no folder", {{.name = "a", .bytes = ""}}},
      {"has a record with the name 'net/../a'", {{.name = "net/../a", .bytes = ""}}},
      {"has a record with the name '/a'", {{.name = "/a", .bytes = ""}}},
      {"has a record with the name 'net/'", {{.name = "net/", .bytes = ""}}},
      {"has a record with the name 'net\\a'", {{.name = "net\\a", .bytes = ""}}},
      {"has two root folders, 'net' and 'other'", {plain, {.name = "other/a", .bytes = ""}}},
      {"has two records 'net/a'", {plain, plain}},
      {"has a compressed record 'net/a' (method 8, 5 of 5 bytes)", changed([](auto& r) { r.method = 8; })},
      {"was written by torch.jit.save(), not by torch.export", changed([](auto& r) {
         r.name = "net/code/__torch__/net.py";
         r.method = 8;
       })},
      {"has an encrypted record 'net/a'", changed([](auto& r) { r.flags = 1; })},
      {"'net/a' has two names", changed([](auto& r) { r.local_name = "net/b"; })},
      {"'net/a' has no header at byte 3", changed([](auto& r) { r.move = 3; })},
      {"'net/a' has 1005 bytes from byte 35 on, of 113", changed([](auto& r) { r.more_bytes = 1000; })},
      {"'net/a' takes bytes 35 to 41, and the directory begins at 40", changed([](auto& r) {
         r.more_bytes = 1;
         r.sizes_follow = false;
       })},
      {"'net/a' has 30 bytes from byte 18446744073709551615 on, of", changed([](auto& r) {
         r.wide = true;
         r.move = -1;
       })},
      {"3 records in a directory of 51 bytes", {plain}, {.more_entries = 2}},
      {"51 bytes after the last entry of its directory", {plain}, {.more_entries = -1}},
      {"4 bytes after the last entry of its directory", {plain}, {.rubbish = "more"}},
      {"its directory has 51 bytes from byte 1040 on, of 113", {plain}, {.move = 1000}},
      {"entry 0 of its directory", {plain}, {.move = -2}},
      {"its directory has 18446744073709551579 bytes from byte 40 on, of 189",
       {plain},
       {.wide = true, .more_bytes = -88}},
  };
  for (const auto& [words, records, end] : cases) {
    INFO(words);
    CHECK_THAT(refusal_of_file(zip_of(records, end)), Catch::Matchers::ContainsSubstring(words));
  }
}

TEST_CASE("Records that overlap are refused with both") {
  // The second begins where the first's last bytes are.
  const auto inner = zip_of({{.name = "net/b", .bytes = "x"}}).substr(0, 36);
  const auto words = refusal_of_file(
      zip_of({{.name = "net/a", .bytes = inner}, {.name = "net/b", .bytes = "x", .move = -36}}));
  CHECK_THAT(words,
             Catch::Matchers::ContainsSubstring("'net/a' takes bytes 35 to 71, and 'net/b' begins at 35"));
}

TEST_CASE("What is no archive is refused, with the hint who writes one") {
  const TempFolder folder;
  const auto whole = zip_of({{.name = "net/a", .bytes = "12345"}});
  CHECK_THAT(refusal_of_file(""), Catch::Matchers::ContainsSubstring("is empty"));
  const auto with_hint = [&](const std::string& bytes) {
    write_file(folder / "net.pt2", bytes);
    return refusal_and_hint<WeightsError>([&] { const Archive archive(folder / "net.pt2"); });
  };
  for (const auto& bytes : {std::string("PK"), std::string(100, 'x')}) {
    CHECK_THAT(with_hint(bytes), Catch::Matchers::ContainsSubstring("is no zip archive") &&
                                     Catch::Matchers::ContainsSubstring("torch.export.save"));
  }
  CHECK_THAT(refusal_of_file(whole.substr(0, whole.size() - 1)),
             Catch::Matchers::ContainsSubstring("the end of its directory is missing"));
  CHECK_THAT(refusal_of<WeightsError>([&] { const Archive archive(folder.path()); }),
             Catch::Matchers::ContainsSubstring("is no regular file"));
  CHECK_THAT(refusal_of<WeightsError>([&] { const Archive archive(folder / "none"); }),
             Catch::Matchers::ContainsSubstring("cannot be opened: No such file or directory"));
}

TEST_CASE("Every cut of an archive is refused") {
  const auto whole = zip_of(
      {{.name = "net/a", .bytes = "12345", .wide = true}, {.name = "net/b", .bytes = "6"}}, {.wide = true});
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " of " << whole.size() << " bytes");
    CHECK(refusal_of_file(whole.substr(0, size)) != "");
  }
}

TEST_CASE("A flipped bit of a record is found by its CRC-32") {
  const TempFolder folder;
  auto bytes = zip_of({{.name = "net/a", .bytes = "123456789"}});
  bytes[bytes.find("123456789") + 4] ^= 1;
  write_file(folder / "net.pt2", bytes);
  const Archive archive(folder / "net.pt2");
  // cbf43926 is CRC-32's check value; Python: zlib.crc32(b"123446789")
  CHECK_THAT(
      refusal_of<WeightsError>([&] { (void)archive.bytes("a"); }),
      Catch::Matchers::ContainsSubstring("record 'a' has CRC-32 f6941096, and the file says cbf43926"));
}

TEST_CASE("A file that is changed in place is not used further, and one that is replaced stays as it was") {
  const TempFolder folder;
  write_file(folder / "net.pt2", zip_of({{.name = "net/a", .bytes = "12345"}}));
  write_file(folder / "new", zip_of({{.name = "net/a", .bytes = "other"}}));
  const Archive archive(folder / "net.pt2");
  const Archive to_be_cut(folder / "new");
  std::filesystem::rename(folder / "new", folder / "net.pt2");
  CHECK(archive.text("a") == "12345");
  std::filesystem::resize_file(folder / "net.pt2", 10);
  CHECK_THAT(
      refusal_of<WeightsError>([&] { (void)to_be_cut.text("a"); }),
      Catch::Matchers::ContainsSubstring("was changed while it was in use: it had 113 bytes and has 10"));
  CHECK(archive.text("a") == "12345");
}

TEST_CASE("A written archive has aligned, stored records with their CRC-32") {
  const TempFolder folder;
  const std::vector<std::pair<std::string, std::string>> contents{
      {"a", "123456789"}, {"b/c", ""}, {"longer/name", std::string(1000, 'x')}, {"d", "end"}};
  std::vector<program::NewRecord> records;
  for (const auto& [name, bytes] : contents) {
    records.push_back({name, bytes.size(), [&bytes] { return std::as_bytes(std::span(bytes)); }});
  }
  write_file(folder / "net.pt2", "an older file");
  program::write_archive(folder / "net.pt2", "net", records);
  const auto file = read_file(folder / "net.pt2");
  CHECK(file.find("123456789") % 64 == 0);
  CHECK(file.substr(14, 4) == "\x26\x39\xf4\xcb");  // CRC-32's check value
  CHECK(file.find(std::string(1000, 'x')) % 64 == 0);

  const Archive archive(folder / "net.pt2");
  CHECK(archive.root() == "net");
  REQUIRE(archive.records().size() == contents.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    INFO(contents[i].first);
    CHECK(archive.records()[i].name == contents[i].first);
    CHECK(text_of(archive.bytes(contents[i].first)) == contents[i].second);
    CHECK((archive.records()[i].bytes.data() - archive.whole_file().data()) % 64 == 0);
  }
}

TEST_CASE("An archive that cannot be written leaves the old file") {
  const TempFolder folder;
  write_file(folder / "net.pt2", "an older file");
  const std::string bytes = "12345";
  const std::vector<program::NewRecord> wrong{{"a", 6, [&] { return std::as_bytes(std::span(bytes)); }}};
  CHECK_THAT(refusal_of<OutputError>([&] { program::write_archive(folder / "net.pt2", "net", wrong); }),
             Catch::Matchers::ContainsSubstring("has 5 bytes instead of 6"));
  CHECK(read_file(folder / "net.pt2") == "an older file");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}
