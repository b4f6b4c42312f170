// `lockstep bench overlap` as users run it: rows, figures, exercises, refusals.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <lockstep/tests/app/bench/bench_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

const Words kSmall = {"bench", "overlap", "--devices", "cpux2",    "--threads",
                      "1",     "--size",  "40",        "--repeat", "3"};

double median_of_three(std::vector<double> values) {
  REQUIRE(values.size() == 3);
  std::sort(values.begin(), values.end());
  return values[1];
}

// Recomputes the value from the row's repetitions.
void check_copy_row(const json& row) {
  const std::vector<double> compute = row.at("compute_seconds"), copy = row.at("copy_seconds"),
                            together = row.at("together_seconds");
  std::vector<double> hidden, over_longer;
  for (size_t i = 0; i < together.size(); ++i) {
    hidden.push_back((compute[i] + copy[i] - together[i]) / std::min(compute[i], copy[i]));
    over_longer.push_back(together[i] / std::max(compute[i], copy[i]));
  }
  CHECK(row.at("hidden").get<double>() == Approx(median_of_three(hidden)).margin(1e-12));
  CHECK(row.at("over_longer").get<double>() == Approx(median_of_three(over_longer)));
  CHECK(row.at("seconds").get<double>() == median_of_three(together));
  CHECK(row.at("compute").get<double>() == median_of_three(compute));
  const double copying = median_of_three(copy);
  CHECK(row.at("copy").get<double>() == copying);
  CHECK(row.at("gb_s").get<double>() == Approx(row.at("bytes").get<double>() / copying / 1e9));
}

std::set<std::string> words_under(const json& rows, const char* key) {
  std::set<std::string> words;
  for (const auto& row : rows) words.insert(row.at(key).get<std::string>());
  return words;
}

}  // namespace

TEST_CASE("overlap measures devices, copies and links, and its figures follow from its times") {
  const auto [result, content] = bench(kSmall + Words{"--iterations", "6"});
  CHECK(content.at("bench") == "overlap");
  CHECK(content.at("settings").at("size") == 40);
  CHECK(content.at("settings").at("iterations") == 6);
  CHECK(content.at("settings").at("devices") == json{"cpu", "cpu"});
  CHECK_THAT(result.out, ContainsSubstring("the chapter: 50 of 4000 on two GPUs"));
  CHECK_THAT(result.out, ContainsSubstring("# overlap: OK ("));

  const auto& devices = rows_of(content, "devices");
  REQUIRE(devices.size() == 3);
  CHECK(devices[0].at("what") == "cpu:0");
  CHECK(devices[2].at("what") == "both at once");
  for (const auto& row : devices) {
    const double matmuls = row.at("what") == "both at once" ? 12 : 6;
    CHECK(row.at("gflops").get<double>() ==
          Approx(matmuls * 2 * 40 * 40 * 40 / row.at("seconds").get<double>() / 1e9));
    CHECK(row.at("repeats") == 3);
  }
  const auto& copies = rows_of(content, "copy");
  REQUIRE(copies.size() == 3);
  CHECK(words_under(copies, "way") ==
        std::set<std::string>{"one after the other", "as the chapter does", "overlapped"});
  for (const auto& row : copies) check_copy_row(row);
  CHECK(copies[0].at("hidden") == Approx(0).margin(1e-9));
  const auto& all = rows_of(content, "all at once");
  CHECK(words_under(all, "way") == std::set<std::string>{"one after the other", "overlapped"});
  for (const auto& row : all) check_copy_row(row);
  const auto& links = rows_of(content, "links");
  REQUIRE(links.size() == 2);
  CHECK(links[1].at("what") == "cpu:1 -> cpu:0");
  CHECK(links[0].at("gb_s").get<double>() ==
        Approx(6 * 40 * 40 * 4 / links[0].at("seconds").get<double>() / 1e9));
  CHECK(content.at("findings").size() >= 4);
}

TEST_CASE("overlap keeps a timeline of each way") {
  const auto content = bench(kSmall + Words{"--iterations", "6"}).json;
  const auto& timeline = content.at("timeline");
  CHECK(words_under(timeline, "experiment") ==
        std::set<std::string>{"copy: one after the other", "copy: as the chapter does", "copy: overlapped",
                              "all at once: one after the other", "all at once: overlapped"});
  CHECK(words_under(timeline, "track") ==
        std::set<std::string>{"cpu:0 compute", "cpu:0 copy", "cpu:1 compute", "cpu:1 copy"});
  CHECK(timeline.size() == 3 * 12 + 2 * 24);
  for (const auto& event : timeline) {
    CHECK(event.at("begin") >= 0.0);
    CHECK(event.at("end") >= event.at("begin"));
  }
}

TEST_CASE("overlap gives no ratio from two repetitions and says so") {
  const auto [result, content] =
      bench({"bench", "overlap", "--devices", "cpux2", "--size", "40", "--iterations", "4", "--repeat", "2"});
  for (const auto& row : rows_of(content, "copy")) {
    CHECK(row.at("hidden").is_null());
    CHECK(row.at("over_longer").is_null());
    CHECK(row.at("seconds") > 0.0);
  }
  CHECK_THAT(result.out, ContainsSubstring("no ratio from 2 repetitions: at least 3 are needed (--repeat)"));
}

TEST_CASE("overlap --trace shows the overlapped run and the two-layer network by device") {
  const TempFolder folder;
  const auto file = (folder / "trace.json").string();
  const auto content = bench(kSmall + Words{"--iterations", "5", "--trace", file}).json;
  CHECK(rows_of(content, "two-layer network").size() == 3);
  const auto trace = read_json(file);
  std::set<std::string> processes, names;
  for (const auto& event : trace) {
    if (event.at("name") == "process_name") processes.insert(event.at("args").at("name"));
    if (event.at("ph") == "X") names.insert(event.at("name"));
  }
  CHECK(processes == std::set<std::string>{"cpu:0", "cpu:1", "host"});
  for (const char* name : {"matmul 4", "copy 4", "forward 1", "forward 2", "gradient 2", "backward 2",
                           "gradient 1", "copy gradient 2", "sum and update 2", "send weights 1"}) {
    INFO(name);
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("each exercise asks, measures, checks and answers") {
  const auto exercise = GENERATE(1, 2, 3, 4, 5);
  const TempFolder folder;
  const auto file = (folder / "trace.json").string();
  const auto [result, content] =
      bench(kSmall + Words{"--exercise", std::to_string(exercise), "--iterations", "5", "--trace", file});
  CHECK_THAT(result.out, ContainsSubstring("# question ") && ContainsSubstring("# experiment ") &&
                             ContainsSubstring("# answer: "));
  CHECK(content.at("settings").at("exercise") == exercise);
  CHECK(content.at("findings").back().at("values").at("exercise") == exercise);
  CHECK(read_json(file).size() > 1);
}

TEST_CASE("exercise 1 and 2 need one device only") {
  const Words one = {"bench", "overlap",  "--devices", "cpu",          "--size",
                     "16",    "--repeat", "3",         "--iterations", "3"};
  CHECK(rows_of(bench(one + Words{"--exercise", "1"}).json, "independent operators").size() == 2);
  const auto sizes = rows_of(bench(one + Words{"--exercise", "2"}).json, "small operators");
  REQUIRE(sizes.size() == 2);
  CHECK(sizes[0].at("size") == 8);
  CHECK(sizes[1].at("size") == 16);
}

TEST_CASE("exercise 4 counts what its timeline shows") {
  const auto content = bench(kSmall + Words{"--exercise", "4", "--iterations", "7"}).json;
  const auto& rows = rows_of(content, "trace");
  REQUIRE(rows.size() == 3);
  for (const auto& row : rows) {
    CHECK(row.at("matmuls") == 7);
    CHECK(row.at("ahead") == 0);
    int64_t beside = 0;
    const auto experiment = "trace: " + row.at("way").get<std::string>();
    for (const auto& matmul : content.at("timeline")) {
      if (matmul.at("experiment") != experiment || matmul.at("track") != "cpu:0 compute") continue;
      const bool met =
          std::any_of(content.at("timeline").begin(), content.at("timeline").end(), [&](const auto& copy) {
            return copy.at("experiment") == experiment && copy.at("track") == "cpu:0 copy" &&
                   copy.at("begin") < matmul.at("end") && matmul.at("begin") < copy.at("end");
          });
      beside += met;
    }
    CHECK(row.at("beside") == beside);
  }
  CHECK(rows[0].at("beside") == 0);
  CHECK(rows[1].at("beside") == 0);  // the computing thread itself copies
}

TEST_CASE("overlap replaces an existing file with --overwrite") {
  const TempFolder folder;
  const auto file = (folder / "there.json").string();
  std::ofstream(file) << "kept";
  CHECK(run_process(program(kSmall + Words{"--iterations", "4", "--json", file, "--overwrite"})).exit_code ==
        0);
  CHECK(read_json(file).at("ok") == true);
}

TEST_CASE("Ctrl-C keeps the finished experiments") {
  const TempFolder folder;
  const auto file = (folder / "overlap.json").string();
  const auto process = program({"bench", "overlap", "--devices", "cpux2", "--threads", "1", "--size", "16",
                                "--iterations", "20", "--repeat", "1000", "--json", file});
  const auto result = stopped_at("# check matmuls: OK", SIGINT, process);
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.out, ContainsSubstring("stopped before the end"));
  const auto content = read_json(file);
  CHECK(content.at("complete") == false);
  CHECK(rows_of(content, "devices").size() == 3);
}
