// `lockstep bench scaling` in several processes.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/tests/app/bench/bench_process.h>
#include <lockstep/tests/app/bench/bench_processes.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const Words kScaling = {"bench",         "scaling", "--data",       "synthetic",
                        "--limit-train", "512",     "--batch-size", "32"};
const Words kBrief = {"--iterations", "1", "--repeat", "3"};

// "strong cpu+cpu 32" of each row.
std::vector<std::string> cases_of(const json& content) {
  std::vector<std::string> cases;
  for (const auto& row : rows_of(content, "scaling")) {
    cases.push_back(row.at("mode").get<std::string>() + " " + row.at("devices").get<std::string>() + " " +
                    row.at("batch_size").dump());
  }
  return cases;
}

// Runs these processes, which must succeed, and returns process 0's file.
json scaling_of(const std::vector<Words>& own, const Words& common, const Words& command = kScaling) {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  auto words = own;
  words.front() = words.front() + Words{"--json", file};
  const auto results = run_all(bench_world(command + kBrief + common, words));
  INFO(results[0].out << results[0].err);
  for (size_t process = 0; process < results.size(); ++process) {
    INFO(results[process].err);
    REQUIRE(results[process].exit_code == 0);
    CHECK(results[process].err.empty());
    CHECK(results[process].out.empty() == (process > 0));
  }
  auto content = read_json(file);
  CHECK(content.at("complete") == true);
  CHECK(content.at("ok") == true);
  return content;
}

// Gradients of the chapter's LeNet in float, counted by hand: two convolutions (3 x 3 and 5 x 5) and two
// matrices, with biases.
constexpr double kLeNetBytes =
    4. * ((20 * 9 + 20) + (50 * 20 * 25 + 50) + (800 * 128 + 128) + (128 * 10 + 10));

}  // namespace

TEST_CASE("bench scaling counts the first 1, 2, 4, ... processes, and predicts more") {
  const auto content = scaling_of({kOneEach, kOneEach, kOneEach}, {"--predict", "4"});
  CHECK(cases_of(content) == std::vector<std::string>{"one cpu 32", "strong cpu+cpu 32", "strong 3(cpu) 32",
                                                      "weak cpu+cpu 64", "weak 3(cpu) 96"});
  CHECK(content.at("settings").at("processes") == 3);
  const auto rows = rows_of(content, "scaling");
  const std::vector<int> processes = {1, 2, 3, 2, 3};
  for (size_t i = 0; i < rows.size(); ++i) {
    INFO(rows[i].dump());
    CHECK(rows[i].at("processes") == processes[i]);
    CHECK(rows[i].at("replicas") == processes[i]);
    CHECK(rows[i].at("efficiency").get<double>() ==
          Approx(100 * rows[i].at("speedup").get<double>() / processes[i]));
  }
  // The replicas agree in each case, and strong ones train what one device trains.
  CHECK(content.at("checks").size() == 6);

  const auto predicted = rows_of(content, "prediction");
  REQUIRE(predicted.size() == 2 * 3);  // 1, 2 and 4 processes
  CHECK(predicted[0].at("ms") == rows[0].at("ms"));
  CHECK(predicted[1].at("processes") == 2);
  CHECK(predicted[1].at("measured_ms") == rows[1].at("ms"));
  CHECK(predicted[2].at("processes") == 4);
  CHECK(predicted[2].count("measured_ms") == 0);
  CHECK(predicted[5].at("batch_size") == 4 * 32);
  const auto& model = content.at("model");
  const double compute =
      model.at("fixed_seconds").get<double>() + 8 * model.at("seconds_per_row").get<double>();
  CHECK(predicted[2].at("compute_ms").get<double>() == Approx(1e3 * compute));  // 32 / 4 rows
  CHECK(model.at("overlaps") == false);
  const auto bytes = model.at("bucket_bytes").get<std::vector<double>>();
  const auto all_bytes = std::accumulate(bytes.begin(), bytes.end(), 0.);
  CHECK(all_bytes >= kLeNetBytes);  // each gradient begins at an aligned address
  CHECK(all_bytes <= 1.01 * kLeNetBytes);
  auto times = model.at("bucket_ready").get<std::vector<double>>();
  CHECK(times.size() == bytes.size());
  times.push_back(model.at("backward_end"));
  CHECK(std::is_sorted(times.begin(), times.end()));
  CHECK(times.front() > 0);
  CHECK(times.back() <= 1);
}

TEST_CASE("bench scaling: processes may drive different numbers of replicas") {
  const auto content = scaling_of({{"--devices", "cpux2"}, kOneEach}, {"--scaling", "strong", "--epochs", "1",
                                                                       "--predict", "2", "--link", "100,1"});
  CHECK(cases_of(content) ==
        std::vector<std::string>{"one cpu 32", "strong cpux2 32", "strong cpux2+cpu 32"});
  const auto rows = rows_of(content, "scaling");
  CHECK(rows[2].at("replicas") == 3);
  for (const auto& row : rows) {
    CHECK(row.at("accuracy").get<double>() == Approx(rows[0].at("accuracy").get<double>()).margin(.05));
  }
  CHECK(content.at("model").at("link") == "100,1");
  for (const auto& row : rows_of(content, "prediction")) CHECK(row.count("error") == 0);  // not alike
}

// The process that waits has no plan of its own to tell that there is nothing to compare.
TEST_CASE("bench scaling: all processes leave out the comparison where each replica has its own statistics") {
  const Words resnet = {
      "bench",         "scaling", "--data",       "synthetic", "--recipe", "resnet18-warmup",
      "--limit-train", "8",       "--batch-size", "4",         "--bn",     "root"};
  const auto content =
      scaling_of({{"--devices", "cpux2"}, {"--devices", "cpu"}}, {"--scaling", "strong"}, resnet);
  CHECK(cases_of(content) == std::vector<std::string>{"one cpu 4", "strong cpux2 4", "strong cpux2+cpu 4"});
  CHECK(content.at("checks").size() == 2);  // the replicas agree
}

TEST_CASE("bench scaling: what differs between processes, or one of them must refuse, ends all") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  const auto common = kScaling + kOneEach + Words{"--json", file};
  all_refuse(bench_world(common, {{"--repeat", "3"}, {"--repeat", "5"}}), 2,
             "process 1 has repeat 5 where process 0 has repeat 3\n");
  all_refuse(bench_world(common, {{}, {"--lr", ".1"}}), 2, "process 1 has lr 0.1 where process 0 has lr ");
  all_refuse(bench_world(common, {{}, {"--link", "nvlink4"}}), 2, "--predict is not given\n");
  all_refuse(bench_world(common + Words{"--predict", "4", "--invariant"}, {{}, {}}), 2,
             "--predict over several processes cannot be combined with --invariant\n");
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("bench scaling: a signal to one process stops all, and the repetitions are shown") {
  const auto endless = bench_world(
      kScaling + kOneEach + Words{"--scaling", "strong", "--iterations", "1", "--repeat", "10000"}, {{}, {}});
  const auto results = run_and_signal(endless, 1, SIGTERM, "# repetitions: 10000");
  for (const auto& result : results) {
    INFO(result.out << result.err);
    CHECK(result.exit_code == 143);
    CHECK_THAT(result.err, ContainsSubstring("stopped by SIGTERM"));
  }
  CHECK_THAT(results[0].out,
             ContainsSubstring("  strong  cpu+cpu") && ContainsSubstring("stopped before the end"));
  CHECK(results[1].out.empty());
}

// One process trains for the accuracy while the other one waits.
TEST_CASE("bench scaling: a signal while some train for the accuracy and others wait stops all") {
  const auto endless = bench_world(kScaling + kOneEach + kBrief + Words{"--epochs", "100000"}, {{}, {}});
  const auto results = run_and_signal(endless, 0, SIGTERM, "test acc");
  for (const auto& result : results) {
    INFO(result.out << result.err);
    CHECK(result.exit_code == 143);
    CHECK_THAT(result.err, ContainsSubstring("stopped by SIGTERM"));
  }
  CHECK_THAT(results[0].out, ContainsSubstring("  weak    cpu+cpu") && ContainsSubstring("stopped before"));
}
