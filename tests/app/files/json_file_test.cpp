// Which JSON of users is accepted, and which is refused.
#include <sys/stat.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <string>

#include <lockstep/app/files/json_file.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;

namespace {

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("bytes that are not UTF-8 become U+FFFD in JSON, in keys, too") {
  const nlohmann::ordered_json value{{"gr\xfc", {"\xff\xfe", "\xc3\xbc"}}};
  CHECK(json_line(value) == "{\"gr\uFFFD\":[\"\uFFFD\uFFFD\",\"\u00fc\"]}\n");
  CHECK(json_text(value) == "{\n  \"gr\uFFFD\": [\n    \"\uFFFD\uFFFD\",\n    \"\u00fc\"\n  ]\n}\n");
}

TEST_CASE("JSON may be nested 64 deep and no deeper") {
  CHECK(parse_json(repeated("[", 64) + "7" + repeated("]", 64)).is_array());
  CHECK(parse_json(repeated("{\"a\":", 64) + "7" + repeated("}", 64)).is_object());
  CHECK(parse_json("[" + repeated("[[]],", 1000) + "{}]").size() == 1001);  // wide, not deep
  for (const size_t depth : {65, 1000, 300'000}) {
    INFO(depth);
    CHECK_THROWS_WITH(parse_json(repeated("[", depth) + repeated("]", depth)),
                      "JSON that is nested more than 64 deep");
    CHECK_THROWS_WITH(parse_json(repeated("{\"a\":[", depth) + "1" + repeated("]}", depth)),
                      "JSON that is nested more than 64 deep");
    CHECK_THROWS_AS(parse_json(repeated("[", depth)), JsonError);
  }
}

TEST_CASE("an error of a text that is not JSON gives the place or the reason") {
  CHECK_THROWS_WITH(parse_json("{\n\"a\": x}"), "not JSON at line 2, column 6");
  CHECK_THROWS_WITH(parse_json("[1e999]"), ContainsSubstring("not JSON: ") && ContainsSubstring("1e999"));
  CHECK_THROWS_AS(parse_json(""), JsonError);
  CHECK_THROWS_AS(parse_json("\"\xff\""), JsonError);
  CHECK_THROWS_AS(parse_json("\"\\ud800\""), JsonError);  // half of a pair
}

TEST_CASE("only regular files up to 256 MB are read") {
  const TempFolder folder;
  const auto refused = [](const std::filesystem::path& path) {
    try {
      read_json_file(path.string(), "a hint");
    } catch (const DataError& error) {
      CHECK(error.hint() == "a hint");
      CHECK_THAT(error.message(), ContainsSubstring("cannot read '" + path.string() + "': "));
      return error.message();
    }
    FAIL("no error for " << path);
    throw;
  };
  const auto file = folder / "a.json", pipe = folder / "pipe", huge = folder / "huge";
  std::ofstream(file) << "[1]\n";
  CHECK(read_json_file(file.string(), "") == "[1]\n");
  std::filesystem::create_symlink(file, folder / "link");
  CHECK(read_json_file((folder / "link").string(), "") == "[1]\n");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);  // it has no writer: opening it would wait for ever
  std::ofstream(huge).close();
  std::filesystem::resize_file(huge, static_cast<uintmax_t>(kMostJsonBytes) + 1);

  CHECK_THAT(refused(folder / "none"), ContainsSubstring("there is no such file"));
  CHECK_THAT(refused(folder.path()), ContainsSubstring("it is a folder"));
  CHECK_THAT(refused(pipe), ContainsSubstring("it is not a regular file"));
  CHECK_THAT(refused("/dev/zero"), ContainsSubstring("it is not a regular file"));
  CHECK_THAT(refused(huge), ContainsSubstring("it has more than 256 MB"));
  CHECK_THAT(refused(file / "below"), ContainsSubstring("cannot read"));
}
