// `lockstep bench allreduce` in several processes.
#include <lockstep/tests/catch.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <lockstep/tests/app/bench/bench_process.h>
#include <lockstep/tests/app/bench/bench_processes.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const Words kAllreduce = {"bench", "allreduce"};
const Words kQuick = {"--min-bytes", "4K", "--max-bytes", "256K", "--repeat", "3", "--iterations", "3"};

// Without an end that a test could wait for.
std::vector<Process> endless(const Words& words = {}) {
  return bench_world(
      kAllreduce + kOneEach + Words{"--min-bytes", "1K", "--max-bytes", "4K", "--repeat", "10000"},
      {words, {}});
}

}  // namespace

TEST_CASE("bench allreduce over processes: process 0 prints, and rows count the replicas of all") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  const auto results = run_all(
      bench_world(kAllreduce + kQuick, {{"--devices", "cpux2", "--json", file}, {"--devices", "cpu"}}));
  INFO(results[0].out << results[0].err << results[1].err);
  REQUIRE(results[0].exit_code == 0);
  CHECK(results[1].exit_code == 0);
  CHECK(results[0].err.empty());
  CHECK(results[1].out.empty());
  CHECK(results[1].err.empty());
  CHECK_THAT(results[0].out, ContainsSubstring("# processes  2, 3 replicas: [cpu, cpu] + [cpu]\n") &&
                                 ContainsSubstring("on wire\n") &&
                                 ContainsSubstring("\n  cpux2+cpu     gloo ") &&
                                 ContainsSubstring("# check sums: OK (0 elements wrong)\n") &&
                                 ContainsSubstring("# allreduce: OK (1 check)\n"));
  const auto content = read_json(file);
  CHECK(content.at("format") == "lockstep bench");
  CHECK(content.at("complete") == true);
  CHECK(content.at("ok") == true);
  CHECK(content.at("settings").at("processes") == 2);
  const auto rows = rows_of(content, "allreduce");
  std::set<int64_t> sizes;
  for (const auto& row : rows) {
    INFO(row.dump());
    const double seconds = row.at("us").get<double>() * 1e-6, bytes = row.at("bytes");
    CHECK(row.at("devices") == "cpux2+cpu");
    CHECK(row.at("ranks") == 3);
    CHECK(row.at("processes") == 2);
    CHECK(row.at("algorithm") == "gloo");
    CHECK(row.at("count") == bytes / 4);
    CHECK(row.at("algbw").get<double>() == Approx(bytes / seconds / 1e9));
    CHECK(row.at("busbw").get<double>() == Approx(bytes / seconds / 1e9 * 4 / 3));
    CHECK(row.at("wrong") == 0);
    CHECK(row.at("repeats") == 3);
    sizes.insert(row.at("bytes").get<int64_t>());
  }
  CHECK(sizes == std::set<int64_t>{4096, 16384, 65536, 262144});
  // 2 S (N-1) / N of S bytes and N processes, and Gloo's headers.
  const auto wire = rows.back().at("wire_bytes").get<double>();
  CHECK(wire >= 262144);
  CHECK(wire <= 1.05 * 262144);
}

TEST_CASE("bench allreduce of one process has the fields of several, and sends nothing") {
  const auto content = bench(kAllreduce + kQuick + Words{"--devices", "cpux2", "--allreduce", "ring"}).json;
  CHECK(content.at("settings").at("processes") == 1);
  for (const auto& row : rows_of(content, "allreduce")) {
    CHECK(row.at("processes") == 1);
    CHECK(row.at("wire_bytes") == 0);
  }
}

TEST_CASE("bench allreduce over processes measures list by list") {
  const auto results =
      run_all(bench_world(kAllreduce + kQuick, {{"--devices", "cpux2", "--devices", "cpu"},
                                                {"--devices", "cpu", "--devices", "cpux2"}}));
  INFO(results[0].out << results[0].err);
  REQUIRE(results[0].exit_code == 0);
  CHECK_THAT(results[0].out,
             ContainsSubstring("\n  cpux2+cpu     gloo ") && ContainsSubstring("\n  cpu+cpux2     gloo "));
}

TEST_CASE("bench allreduce: lockstep launch starts it, and one table is printed") {
  const auto result = run_process(
      program(Words{"launch", "-n", "2", "--"} + kAllreduce + kOneEach + kQuick + Words{"--threads", "1"}));
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("# processes  2 (") && ContainsSubstring("\n  cpu+cpu       gloo "));
  const std::string end = "# allreduce: OK (1 check)\n";
  CHECK(result.out.find(end) == result.out.rfind(end));
  CHECK(result.out.ends_with(end));
}

TEST_CASE("bench allreduce: what differs between processes, or one of them must refuse, ends all") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string(), old = (folder / "old.json").string();
  std::ofstream(old) << "old";
  const auto common = kAllreduce + kOneEach;
  all_refuse(bench_world(common + Words{"--json", file}, {{"--repeat", "3"}, {"--repeat", "5"}}), 2,
             "the settings differ: process 1 has repeat 5 where process 0 has repeat 3\n");
  all_refuse(bench_world(common, {{"--min-bytes", "8"}, {}}), 2,
             "process 1 has min bytes 1024 where process 0 has min bytes 8\n");
  all_refuse(bench_world(common, {{}, {"--min-bytes", "1M", "--max-bytes", "1K"}}), 2,
             "--min-bytes 1M is above --max-bytes 1K\n");
  all_refuse(bench_world(common + Words{"--allreduce", "ring"}, {{}, {}}), 2,
             "--allreduce ring sums within one process, but there are 2 processes\n");
  all_refuse(bench_world(kAllreduce, {{"--devices", "cpu", "--devices", "cpux2"}, kOneEach}), 2,
             "the --devices differ: process 1 has 1 list where process 0 has 2 lists\n");
  all_refuse(bench_world(common, {{"--json", old}, {}}), 7, "--overwrite");
  // Both processes of this host need it: 6 tensors of 256 GiB each.
  all_refuse(bench_world(common + Words{"--max-bytes", "256G"}, {{}, {}}), 8,
             "sums of 256G bytes on cpu would take 3298.5 GB");
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(read_file(old) == "old");
}

TEST_CASE("bench allreduce: a signal to one process stops all, and the rows are kept") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  const auto results = run_and_signal(endless({"--json", file}), 1, SIGTERM, "# processes");
  std::vector<std::string> where;
  for (const auto& result : results) {
    INFO(result.out << result.err);
    CHECK(result.exit_code == 143);
    where.push_back(found_in(result.err, "stopped by SIGTERM (.*)\n"));
  }
  CHECK_FALSE(where[0].empty());
  CHECK(where[0] == where[1]);
  CHECK_THAT(results[0].err, ContainsSubstring("error: rank 0 (process 0): "));
  CHECK_THAT(results[1].err, ContainsSubstring("error: rank 1 (process 1): "));
  CHECK_THAT(results[0].out, ContainsSubstring("stopped before the end"));
  CHECK(results[1].out.empty());
  const auto content = read_json(file);
  CHECK(content.at("complete") == false);
  CHECK(rows_of(content, "allreduce").size() <= 1);
}

TEST_CASE("bench allreduce: when a process is lost, the other one ends with code 10") {
  const auto results = run_and_signal(endless(), 1, SIGKILL, "# processes");
  CHECK(results[1].signal == SIGKILL);
  INFO(results[0].err);
  CHECK(results[0].exit_code == 10);
  CHECK(results[0].err.rfind("lockstep: error: rank 0 (process 0): ", 0) == 0);
}
