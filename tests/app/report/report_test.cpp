// The tables and files of benchmarks.
#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/report/report.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a row is aligned with its titles") {
  const std::vector<Column> columns = {{.key = "way", .title = "way", .width = 6, .digits = kText},
                                       {.key = "bytes", .title = "size", .unit = "B", .width = 5},
                                       {.key = "ms", .title = "time", .unit = "ms", .width = 7, .digits = 2}};
  CHECK(table_heading(columns) == "# way      size     time\n#           (B)     (ms)");
  CHECK(table_line(columns, {{"way", "root"}, {"bytes", 64}, {"ms", 1.005}, {"more", 1}}) ==
        "  root       64     1.00");
  CHECK(table_line(columns, {{"way", "none"}, {"bytes", 0}, {"ms", nullptr}}) == "  none        0        -");
  CHECK(table_line(columns, {{"way", "none"}}) == "  none        -        -");
}

TEST_CASE("a benchmark that fails ends by its own error, though its results cannot be written either") {
  const lockstep::testing::TempFolder folder;
  BenchOptions options;
  options.json = (folder / "gone/bench.json").string();
  std::filesystem::create_directory(folder / "gone");
  BenchReport report("nothing", options, Json::object());
  CHECK_THROWS_AS(report.run([&] {
    std::filesystem::remove_all(folder / "gone");
    throw DeviceError("the GPU is lost");
  }),
                  DeviceError);
}
