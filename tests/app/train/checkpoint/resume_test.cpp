// Runs that are stopped, killed and gone on with end as the run without a break.
#include <signal.h>

#include <lockstep/tests/catch.h>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/run_files/event_file.h>
#include <lockstep/tests/app/train/checkpoint/resumed_runs.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::set<std::string> kTimes = {"step_ms",   "images_per_second", "resident_bytes",
                                      "data_ms",   "compute_ms",        "sync_ms",
                                      "update_ms", "train_seconds",     "test_seconds"};

// Returns what does not depend on the clock, of all lines but the first, the last, and those that say that
// the limit of steps has changed.
std::vector<json> timeless_events(const fs::path& run) {
  auto events = metrics_in((run / "metrics.jsonl").string());
  REQUIRE(events.size() > 2);
  for (auto& event : events) {
    for (const auto& key : kTimes) event.erase(key);
  }
  events.erase(events.begin());
  events.pop_back();
  std::erase_if(events, [](const json& event) { return event.at("event") == "resumed"; });
  return events;
}

// The rows of metrics.csv as they should be, from metrics.jsonl.
std::vector<std::string> expected_rows(const fs::path& run, const std::string& header) {
  std::vector<std::string> rows = {header};
  for (const auto& event : metrics_in((run / "metrics.jsonl").string())) {
    if (event.at("event") != "step" && event.at("event") != "epoch") continue;
    std::string row;
    std::istringstream names(header);
    for (std::string name; std::getline(names, name, ',');) {
      row += row.empty() ? "" : ",";
      if (name == "event") {
        row += event.at("event").get<std::string>();
      } else if (event.contains(name)) {
        row += event.at(name).dump();
      }
    }
    rows.push_back(row);
  }
  return rows;
}

// TensorBoard's records without their times: steps and scalars.
std::vector<std::pair<uint64_t, Scalars>> timeless_records(const fs::path& run) {
  std::vector<std::pair<uint64_t, Scalars>> result;
  for (auto& record : records_in(run / "events.out.tfevents")) {
    record.scalars.erase("images_per_second");
    result.emplace_back(record.step, record.scalars);
  }
  return result;
}

struct Metrics {
  std::vector<json> events;
  std::vector<std::pair<uint64_t, Scalars>> records;
  bool operator==(const Metrics&) const = default;
};

// Also checks that metrics.csv has what metrics.jsonl has, and each measurement once.
Metrics timeless(const fs::path& run) {
  const auto rows = lines(read_file(run / "metrics.csv"));
  REQUIRE_FALSE(rows.empty());
  CHECK(rows == expected_rows(run, rows.front()));
  Metrics metrics{timeless_events(run), timeless_records(run)};
  CHECK(metrics.records.size() == rows.size());  // the first of them is the version
  return metrics;
}

struct Whole {
  std::string hash;
  Metrics metrics;
};

Whole run_whole(const Words& words) {
  const TempFolder folder;
  const auto run = (folder / "run").string();
  const auto result = run_process(train(kCommon + words + Words{"--output", run}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return {hash_in(result.out), timeless(folder / "run")};
}

}  // namespace

// 3 epochs of 5 steps
TEST_CASE("a run that is cut and resumed at every other step gives the same weights and epochs") {
  const Words words = {"--epochs", "3", "--devices", "cpux2", "--momentum", ".9"};
  const auto whole = run_whole(words);
  const TempFolder folder;
  const Words output = {"--output", (folder / "run").string(), "--resume", "auto"};
  ProcessResult result;
  for (int steps = 1; steps <= 15; steps += 2) {
    result = run_process(train(kCommon + words + output + Words{"--limit-steps", std::to_string(steps)}));
    INFO("up to step " << steps << "\n" << result.err);
    REQUIRE(result.exit_code == 0);
  }
  CHECK(hash_in(result.out) == whole.hash);
  const auto epochs = [](std::vector<json> events) {  // each cut also has a step line
    std::erase_if(events, [](const json& event) { return event.at("event") != "epoch"; });
    return events;
  };
  const auto found = epochs(timeless(folder / "run").events);
  CHECK(found.size() == 3);
  CHECK(found == epochs(whole.metrics.events));
}

// The run without breaks is made last, with as many steps: so nothing depends on when the kills come.
TEST_CASE("a run that is killed again and again ends as the one without kills, weights and metrics") {
  const auto words =
      GENERATE(Words{"--devices", "cpu"}, Words{"--devices", "cpux2", "--bn", "average", "--accumulate", "2"},
               Words{"--devices", "cpu", "--optimizer", "adamw", "--precision", "bf16"},
               Words{"--devices", "cpux4", "--invariant"});
  INFO(words[1] << " " << (words.size() > 2 ? words[2] : ""));
  const TempFolder folder;
  const auto run = folder / "run";
  const Words kept = {"--output", run.string(), "--resume", "auto", "--checkpoint-every", "1"};
  for (int kill = 0; kill < 3; ++kill) {
    const auto stopped =
        stopped_at("| test loss ", SIGKILL, train(kCommon + words + kept + Words{"--epochs", "1000000"}));
    CHECK(stopped.signal == SIGKILL);
    CHECK((stopped.out.find("resumed from ") != std::string::npos) == (kill > 0));
  }
  const auto limit = std::to_string(newest_step(run) + 7);
  const auto end =
      run_process(train(kCommon + words + kept + Words{"--epochs", "1000000", "--limit-steps", limit}));
  INFO(end.err);
  REQUIRE(end.exit_code == 0);
  const auto whole = run_whole(words + Words{"--epochs", "1000000", "--limit-steps", limit});
  CHECK(hash_in(end.out) == whole.hash);
  CHECK(timeless(run) == whole.metrics);
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    CHECK(entry.path().filename().native().find(".tmp") == std::string::npos);
  }
}

TEST_CASE("a run stopped by a signal keeps a checkpoint of its last step, and goes on from it") {
  const TempFolder folder;
  const auto run = folder / "run";
  const Words words = Words{"--devices", "cpu", "--epochs", "1000000"};
  const Words kept = {"--output", run.string()};
  const auto stopped = stopped_at("| test loss ", SIGTERM, train(kCommon + words + kept));
  CHECK(stopped.exit_code == 143);
  const auto step = newest_step(run);
  CHECK_THAT(stopped.out, ContainsSubstring("checkpoint of step " + std::to_string(step) + " in "));
  const Words limit = {"--limit-steps", std::to_string(step + 7)};
  const auto end = run_process(train(kCommon + words + kept + limit + Words{"--resume", "auto"}));
  INFO(end.err);
  REQUIRE(end.exit_code == 0);
  const auto whole = run_whole(words + limit);
  CHECK(hash_in(end.out) == whole.hash);
  CHECK(timeless(run) == whole.metrics);
}

TEST_CASE("two processes go on from the checkpoint of process 0, and one process from that of two") {
  const auto words = GENERATE(Words{"--momentum", ".9", "--precision", "fp16", "--ema", ".9"},
                              Words{"--optimizer", "adamw", "--precision", "bf16"}) +
                     Words{"--epochs", "3", "--invariant"};
  const auto common = kCommon + words;
  const auto whole = run_whole(words + Words{"--devices", "cpux2"});
  const TempFolder folder;
  const Words output = {"--output", (folder / "run").string(), "--resume", "auto"};
  const auto in_two = [&](const Words& more) {
    // Only process 0 names a folder.
    return run_all(small_world(common + more, {Words{"--devices", "cpu"} + output, {"--devices", "cpu"}}));
  };
  const auto first = in_two({"--limit-steps", "7"});
  INFO(first[0].err << first[1].err);
  REQUIRE(first[0].exit_code == 0);
  CHECK(first[1].exit_code == 0);
  const auto second =
      run_process(train(common + Words{"--devices", "cpux2", "--limit-steps", "11"} + output));
  INFO(second.err);
  REQUIRE(second.exit_code == 0);
  CHECK_THAT(second.out, ContainsSubstring("step-00000007 (7 of 11 steps done)"));
  const auto last = in_two({});
  INFO(last[0].err << last[1].err);
  REQUIRE(last[0].exit_code == 0);
  CHECK(last[1].exit_code == 0);
  CHECK(last[1].out.empty());
  CHECK(hash_in(last[0].out) == whole.hash);
}
