// The tables and files of benchmarks.
#include <lockstep/tests/catch.h>
#include <csignal>
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

TEST_CASE("a row of times has the median, the quartiles and their distance in its unit") {
  const auto row = times_row({{"devices", "cpux2"}}, {2.5, 1, 1.5, 2, 3}, kMilliseconds);
  CHECK(row == Json{{"devices", "cpux2"},
                    {"ms", 2000.},
                    {"low_ms", 1500.},
                    {"high_ms", 2500.},
                    {"iqr", 50.},
                    {"repeats", 5}});
}

TEST_CASE("cases are measured in turns: each repetition begins with another one, as often as was said") {
  BenchOptions options;
  options.repeat = 3;
  BenchReport report("nothing", options, Json::object());
  std::string order;
  const auto measure = [&](char name, double seconds) {
    return [&order, name, seconds] {
      order += name;
      return seconds;
    };
  };
  std::vector<Seconds> seconds;
  report.run([&] { seconds = report.in_turns({measure('a', 1), measure('b', 2), measure('c', 3)}); });
  CHECK(order == "abcbcacab");
  CHECK(seconds == std::vector<Seconds>{{1, 1, 1}, {2, 2, 2}, {3, 3, 3}});
  CHECK(report.in_turns({measure('a', 1)}, [](const auto& taken) { return taken[0].size() < 5; }) ==
        std::vector<Seconds>{{1, 1, 1, 1, 1}});
}

TEST_CASE("after a signal the repetition in progress is the last") {
  BenchOptions options;
  options.repeat = 100;
  BenchReport report("nothing", options, Json::object());
  int taken = 0;
  CHECK_THROWS_AS(report.run([&] {
    const auto seconds = report.in_turns({[&] { return ++taken == 2 ? std::raise(SIGTERM) : 0; }});
    CHECK(seconds.front().size() == 2);
    report.stop_if_interrupted("here");
  }),
                  InterruptedError);
  CHECK(taken == 2);
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
