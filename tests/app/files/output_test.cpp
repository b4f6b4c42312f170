// Output files: lines, whole files, and flags that name the same file.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/file_limit.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::FileLimit;
using lockstep::testing::read_file;
using lockstep::testing::refusal_and_hint;
using lockstep::testing::TempFolder;
using lockstep::testing::write_file;
namespace fs = std::filesystem;

namespace {

// The error of opening the file, and its hint.
std::string refusal(const fs::path& path, bool overwrite) {
  return refusal_and_hint<OutputError>([&] { LineFile(path.string(), overwrite); });
}

}  // namespace

TEST_CASE("each line is in the file as soon as it is written") {
  const TempFolder folder;
  LineFile file((folder / "a.jsonl").string(), false);
  file.append("{\"step\": 1}\n");
  CHECK(read_file(folder / "a.jsonl") == "{\"step\": 1}\n");
  file.append("{\"step\": 2}\n");
  CHECK(read_file(folder / "a.jsonl") == "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST_CASE("an existing file is kept, and opening it is refused") {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "old\n");
  CHECK_THAT(refusal(folder / "a.jsonl", false), ContainsSubstring("a.jsonl") &&
                                                     ContainsSubstring("already exists") &&
                                                     ContainsSubstring("replace it with overwrite = true"));
  CHECK(read_file(folder / "a.jsonl") == "old\n");
}

TEST_CASE("an overwritten file keeps its content until the first line is written") {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "old, and longer than the new content\n");
  { const LineFile unused((folder / "a.jsonl").string(), true); }
  CHECK(read_file(folder / "a.jsonl") == "old, and longer than the new content\n");
  LineFile file((folder / "a.jsonl").string(), true);
  file.append("new\n");
  CHECK(read_file(folder / "a.jsonl") == "new\n");
}

TEST_CASE("a LineFile without lines leaves no file") {
  const TempFolder folder;
  for (const bool overwrite : {false, true}) {
    { const LineFile unused((folder / "a.jsonl").string(), overwrite); }
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("paths that cannot be written") {
  const TempFolder folder;
  write_file(folder / "file", "");
  for (const bool overwrite : {false, true}) {
    CHECK_THAT(refusal(folder.path(), overwrite), ContainsSubstring("it is a folder"));
    CHECK_THAT(refusal(folder / "none/a.jsonl", overwrite),
               ContainsSubstring("none' does not exist") && ContainsSubstring("mkdir -p"));
    CHECK_THAT(refusal(folder / "file/a.jsonl", overwrite), ContainsSubstring("Not a directory"));
    CHECK_FALSE(refusal("", overwrite).empty());
  }
  fs::create_symlink(folder / "nowhere", folder / "link");
  CHECK_FALSE(refusal(folder / "link", false).empty());
  CHECK_FALSE(fs::exists(folder / "nowhere"));
}

TEST_CASE("a full disk is an error") {
  LineFile file("/dev/full", false);  // devices need no --overwrite
  CHECK_THROWS_WITH(file.append("x\n"), ContainsSubstring("/dev/full") && ContainsSubstring("No space left"));
}

TEST_CASE("on a full disk a file keeps whole lines, and an old file is unchanged") {
  const TempFolder folder;
  write_file(folder / "old", "old\n");
  LineFile first((folder / "old").string(), true), next((folder / "new").string(), false);
  next.append("12345\n");
  {
    const FileLimit limit(8);
    CHECK_THROWS_WITH(first.append("a longer line\n"),
                      ContainsSubstring("old") && ContainsSubstring("File too large"));
    CHECK_THROWS_WITH(next.append("12345\n"), ContainsSubstring("File too large"));
  }
  CHECK(read_file(folder / "old") == "old\n");
  CHECK(read_file(folder / "new") == "12345\n");
  next.append("6\n");
  CHECK(read_file(folder / "new") == "12345\n6\n");
}

TEST_CASE("two flags that name the same file are refused, however the paths are spelt") {
  const TempFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  write_file(folder / "file", "");
  fs::create_symlink("file", folder / "link");
  fs::create_hard_link(folder / "file", folder / "second");
  fs::create_directory(folder / "sub");
  fs::create_directory_symlink(".", folder / "same");
  const std::vector<std::pair<std::string, std::string>> one = {
      {"file", "file"},      {"file", "./file"},    {"file", "link"},
      {"file", "second"},    {"new", "new"},        {"new", "sub/../new"},
      {"same/new", "./new"}, {"same/file", "link"}, {"none/new", "none/new"}};
  for (const auto& [a, b] : one) {
    INFO(a << " and " << b);
    CHECK(same_file(path(a), path(b)));
    CHECK_THROWS_WITH(check_distinct_files({{"--save", path(a)}, {"--json", {}}, {"--trace", path(b)}}),
                      ContainsSubstring("--save") && ContainsSubstring("--trace") &&
                          ContainsSubstring("are the same file"));
    CHECK_THROWS_AS(check_distinct_files({{"--output", path(a)}}, {{"FILE", path(b)}}), UsageError);
  }
  const std::vector<std::pair<std::string, std::string>> two = {
      {"file", "new"}, {"new", "sub/new"}, {"new", "other"}, {"none/new", "none/other"}};
  for (const auto& [a, b] : two) {
    check_distinct_files({{"--save", path(a)}, {"--trace", path(b)}});
    CHECK_FALSE(same_file(path(a), path(b)));
  }
  check_distinct_files({{"--save", "/dev/null"}, {"--trace", "/dev/../dev/null"}});
  CHECK_THROWS_WITH(check_distinct_files({{"--save", "/dev/null"}, {"--trace", "/dev/null"}}),
                    "--save '/dev/null' and --trace '/dev/null' are the same file");
  check_distinct_files({{"--save", path("a")}}, {{"FILE", path("file")}, {"FILE", path("file")}});
}
