// Files that cannot be drawn, and their errors.
#include <lockstep/tests/catch.h>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/tests/app/plot/plot_files.h>

using namespace lockstep;
using namespace lockstep::plot;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// The error: exit code, text and hint.
Error refusal(const std::vector<std::pair<std::string, std::string>>& files) {
  try {
    figure_from(files);
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error for " << files.front().second);
  throw;
}

void check_data_error(const std::string& text, const std::string& says) {
  INFO(text);
  const auto error = refusal({{"some/file.json", text}});
  CHECK(error.exit_code() == ExitCode::kData);
  CHECK_THAT(error.message(), ContainsSubstring("'some/file.json'") && ContainsSubstring(says));
  CHECK_FALSE(error.hint().empty());
}

}  // namespace

TEST_CASE("a file of another kind is refused with its kind") {
  check_data_error("", "it is empty");
  check_data_error(" \n\n", "it is empty");
  check_data_error("epoch,accuracy\n1,0.5\n", "it is not JSON");
  check_data_error("[1, 2]", "plain array");
  check_data_error("7", "plain number");
  check_data_error("{}", "empty JSON object");
  check_data_error(R"({"model":"x","layers":[]})", "'model', 'layers'");
  check_data_error(R"({"format":"other","version":1})", "'format', 'version'");
  check_data_error(R"([{"name":"step","ph":"X"}])", "it is a trace");
  check_data_error("{\"loss\":1}\n{\"loss\":2}\n", "not the plan of a run");
  check_data_error(bench("partition", R"("tables":[])"), "no picture of the benchmark 'partition'");
  check_data_error(R"({"format":"lockstep sweep","version":2,"cells":[]})",
                   "version 2, this lockstep reads version 1");
  check_data_error(R"({"format":"lockstep bench","bench":"allreduce","tables":[]})", "version null");
  check_data_error("\xff\xfe{}", "not JSON");
}

TEST_CASE("a confusion without a count for each pair of classes is refused") {
  check_data_error(R"({"test_rows":1,"confusion":{"classes":["a","b"],"counts":[[1,0]]}})", "2 counts for 2");
  check_data_error(R"({"test_rows":1,"confusion":{"classes":[],"counts":[]}})", "0 counts for 0");
}

TEST_CASE("damaged files are refused with the place") {
  const auto whole = run(R"(["cpu"])", "0.2");
  check_data_error(whole.substr(0, whole.size() - 10) + "\n", "line 7 is not a whole JSON object");
  check_data_error(whole + "[]\n", "line 8 is not a whole JSON object");
  const auto sound = bench("allreduce", "\n\"tables\":[]\n");
  check_data_error(sound.substr(0, sound.size() - 4), "damaged or cut short");
  check_data_error(sound.substr(0, sound.size() - 4), "at line 2");
  check_data_error(R"({"format":"lockstep bench","version":1e999})", "damaged or cut short");
  // Cut within the only line.
  check_data_error(whole.substr(0, 20), "damaged or cut short");
}

TEST_CASE("sound files without anything to draw are refused") {
  const auto whole = run(R"(["cpu"])", "0.2");
  check_data_error(whole.substr(0, whole.find('\n')), "no step or epoch line");
  check_data_error(whole.substr(0, whole.find('\n') + 9), "no step or epoch line");
  check_data_error(bench("allreduce", R"("tables":[])"), "no measured bandwidth");
  check_data_error(bench("allreduce", R"("tables":[)" + table("allreduce", "") + "]"),
                   "no measured bandwidth");
  check_data_error(
      bench("allreduce", R"("tables":[)" + table("allreduce", R"({"bytes":8,"busbw":null})") + "]"),
      "no measured bandwidth");
  check_data_error(bench("scaling", R"("tables":[)" + table("scaling", "") + "]"), "no measured speed-up");
  check_data_error(bench("overlap", R"("tables":[])"), "no timeline");
  check_data_error(bench("overlap", R"("tables":[],"timeline":[])"), "no timeline");
  check_data_error(sweep(""), "no cell with an accuracy or a loss");
}

TEST_CASE("values of the wrong type are refused") {
  check_data_error(bench("allreduce", R"("tables":7)"), "was not written by lockstep");
  check_data_error(sweep(R"({"lr":"high","accuracy":0.5})"), "type must be number, but is string");
  check_data_error(bench("overlap", R"("timeline":[{"begin":0,"end":1}])"), "experiment");
  check_data_error(R"({"event":"plan"})"
                   "\n"
                   R"({"event":"epoch","epoch":1})",
                   "steps_per_epoch");
  check_data_error(R"({"event":"plan","steps_per_epoch":0})"
                   "\n"
                   R"({"event":"epoch","epoch":1})",
                   "at least one step");
}

TEST_CASE("endless nesting is refused, in a document and in a line") {
  const std::string deep = std::string(80'000, '[') + std::string(80'000, ']');
  const std::string format = R"({"format":"lockstep bench","version":1,"bench":"allreduce","tables":)";
  check_data_error(deep, "nested more than 64 deep");
  check_data_error(format + deep + "}", "nested more than 64 deep");
  const auto whole = run(R"(["cpu"])", "0.2");
  check_data_error(whole + deep + "\n",
                   "line 8 is not a whole JSON object (JSON that is nested more than 64 deep)");
}

TEST_CASE("an incomplete last line of a run is left out") {
  const auto whole = run(R"(["cpu"])", "0.2");
  const auto lines_before = whole.rfind("{\"event\":\"end\"");
  for (const size_t length : {lines_before + 1, lines_before + 10, whole.size() - 2}) {
    const auto source = parse_source("run.jsonl", whole.substr(0, length));
    CHECK(source.cut_short);
    CHECK(source.json.size() == 6);
  }
  const auto without_end =
      parse_source("run.jsonl", whole.substr(0, whole.size() - 1));  // without the end of line
  CHECK_FALSE(without_end.cut_short);
  CHECK(without_end.json.size() == 7);
  CHECK_FALSE(parse_source("run.jsonl", whole).cut_short);
}

TEST_CASE("files of different kinds make no picture together") {
  const auto error = refusal({{"run.jsonl", run(R"(["cpu"])", "0.2")}, {"s.json", sweep("")}});
  CHECK(error.exit_code() == ExitCode::kUsage);
  CHECK_THAT(error.message(), ContainsSubstring("'run.jsonl' is the metrics of a run") &&
                                  ContainsSubstring("'s.json' is a sweep"));
}

TEST_CASE("all texts that are read are printable") {
  const auto source =
      parse_source("run.jsonl",
                   "{\"event\":\"plan\",\"model\":\"a\\u0001b\\u001b\",\"devices\":[\"\\ufffe\\u0000\"],"
                   "\"steps_per_epoch\":4,\"n\":{\"x\":\"\\u00e4\\ud83d\\ude00\"}}\n");
  const auto& plan = source.json.front();
  CHECK(plan.at("model") == "a?b?");
  CHECK(plan.at("devices").at(0) == "??");
  CHECK(plan.at("n").at("x") == "\xC3\xA4\xF0\x9F\x98\x80");
}

TEST_CASE("numbers that are too large are left out, and tiny ones become 0") {
  const auto source =
      parse_source("run.jsonl", "{\"event\":\"plan\",\"a\":1.7e308,\"b\":[-1e101,1e100,1e-101,-5e-324,7]}\n");
  const auto& plan = source.json.front();
  CHECK(plan.at("a").is_null());
  CHECK(plan.at("b") == Json::parse("[null,1e100,0.0,0.0,7]"));
  const auto rows = [](const std::string& values) {
    return bench("allreduce", R"("tables":[)" + table("allreduce", values) + "]");
  };
  const auto figure = figure_from(
      {{"a.json",
        rows(R"({"bytes":8,"busbw":1.5},{"bytes":1.7e308,"busbw":5},{"bytes":16,"busbw":5e-324})")}});
  REQUIRE(figure.panels.front().series.size() == 1);
  CHECK(figure.panels.front().series.front().points.size() == 1);
  CHECK_THAT(refusal({{"a.json", rows(R"({"bytes":1.7e308,"busbw":1.7e308})")}}).message(),
             ContainsSubstring("no measured bandwidth"));
}

TEST_CASE("texts of a picture are well-formed UTF-8 without control characters") {
  CHECK(printable("run \xC3\xA4.jsonl") == "run \xC3\xA4.jsonl");
  CHECK(printable(std::string("a\nb\0c", 5)) == "a?b?c");
  CHECK(printable("a\xFF"
                  "b") ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(printable("a\xEF\xBF\xBF") == "a?");
}
