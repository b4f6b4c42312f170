// Runs that are stopped, killed and gone on with end as the run without a break.
#include <signal.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const Words kCommon = {"--log-every", "2", "--print-weights-hash", "--limit-test", "64"};

std::string hash_in(const std::string& out) { return found_in(out, "weights sha256: ([0-9a-f]{64})\n"); }

// What does not depend on the clock, of all lines but the first and the last.
std::vector<json> timeless(const fs::path& metrics) {
  auto events = metrics_in(metrics.string());
  REQUIRE(events.size() > 2);
  for (auto& event : events) {
    for (const std::string key : {"step_ms", "images_per_second", "resident_bytes", "data_ms", "compute_ms",
                                  "sync_ms", "update_ms", "train_seconds", "test_seconds"}) {
      event.erase(key);
    }
  }
  events.erase(events.begin());
  events.pop_back();
  return events;
}

// Of the checkpoints of this run.
int64_t newest_step(const fs::path& run) {
  int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    const auto name = entry.path().filename().native();
    if (name.starts_with("step-")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return newest;
}

struct Whole {
  std::string hash;
  std::vector<json> metrics;
};

Whole run_whole(const Words& words) {
  const TempFolder folder;
  const auto run = (folder / "run").string();
  const auto result = run_process(train(kCommon + words + Words{"--output", run}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return {hash_in(result.out), timeless(folder / "run/metrics.jsonl")};
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
  const auto found = epochs(timeless(folder / "run/metrics.jsonl"));
  CHECK(found.size() == 3);
  CHECK(found == epochs(whole.metrics));
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
  CHECK(timeless(run / "metrics.jsonl") == whole.metrics);
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
  CHECK(timeless(run / "metrics.jsonl") == whole.metrics);
}

TEST_CASE("a run that is done says so when it is resumed, and changes nothing") {
  const TempFolder folder;
  const Words words =
      kCommon + Words{"--epochs", "3", "--output", (folder / "run").string(), "--resume", "auto"};
  REQUIRE(run_process(train(words)).exit_code == 0);
  const auto metrics = read_file(folder / "run/metrics.jsonl");
  const auto again = run_process(train(words));
  CHECK(again.exit_code == 0);
  CHECK_THAT(again.out, ContainsSubstring("all 15 steps of this run are done: there is nothing left to do"));
  CHECK(read_file(folder / "run/metrics.jsonl") == metrics);
  CHECK(newest_step(folder / "run") == 15);
}

TEST_CASE("two processes go on from the checkpoint of process 0, and one process from that of two") {
  const Words common = kCommon + Words{"--epochs", "3", "--invariant", "--momentum", ".9"};
  const auto whole = run_whole({"--epochs", "3", "--devices", "cpux2", "--invariant", "--momentum", ".9"});
  const TempFolder folder;
  const Words output = {"--output", (folder / "run").string(), "--resume", "auto"};
  const auto in_two = [&](const Words& words) {
    // Only process 0 names a folder.
    return run_all(small_world(common + words, {Words{"--devices", "cpu"} + output, {"--devices", "cpu"}}));
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

TEST_CASE("a broken checkpoint is skipped with its name") {
  const TempFolder folder;
  const auto run = (folder / "run").string();
  const Words words = kCommon + Words{"--epochs", "3", "--devices", "cpu", "--output", run};
  REQUIRE(run_process(train(words)).exit_code == 0);
  write_file(folder / "run/checkpoints/last/state.json", "{}");
  const auto resumed = run_process(train(words + Words{"--resume", "auto"}));
  CHECK(resumed.exit_code == 0);
  CHECK_THAT(resumed.err,
             ContainsSubstring("step-00000015' is damaged") && ContainsSubstring("it is skipped"));
  CHECK_THAT(resumed.out, ContainsSubstring("step-00000010 (10 of 15 steps done)"));
}

TEST_CASE("two processes go back together, and stop together when that does not help") {
  const TempFolder folder;
  const Words words = {"--epochs", "2", "--lr", "1e30", "--on-nan", "skip", "--limit-test", "64"};
  const auto all = run_all(small_world(
      words, {Words{"--devices", "cpu", "--output", (folder / "run").string()}, {"--devices", "cpu"}}));
  for (const auto& one : all) {
    INFO(one.err);
    CHECK(one.exit_code == 6);
    CHECK_THAT(one.err, ContainsSubstring("after the run had gone back 10 times"));
  }
  CHECK_THAT(all[0].err, ContainsSubstring("the run goes back to its checkpoint of step 0"));
  CHECK_THAT(all[1].err, !ContainsSubstring("goes back to"));
}

TEST_CASE("what cannot be kept or gone on with is refused before training") {
  const TempFolder folder;
  const auto run = (folder / "run").string();
  const Words common = {"--epochs", "1", "--limit-test", "64", "--devices", "cpu", "--quiet"};
  REQUIRE(run_process(train(common + Words{"--output", run})).exit_code == 0);
  const auto refused = [&](const Words& words, int code, const std::string& text) {
    const auto result = run_process(train(common + words));
    INFO(text);
    CHECK(result.exit_code == code);
    CHECK_THAT(result.err, ContainsSubstring(text));
  };
  refused({"--output", run}, 7, "already exists and is not empty");
  refused({"--output", "/proc/none"}, 7, "cannot make the run folder '/proc/none'");
  refused({"--resume", (folder / "none").string()}, 4, "there is no such folder");
  refused({"--resume", run, "--seed", "3"}, 4, "the checkpoint's run has seed 0, this one has 3");
  refused({"--resume", run, "--batch-size", "64"}, 4, "batch size 128, this one has 64");
  refused({"--resume", run, "--model", "resnet18"}, 4, "model lenet, this one has resnet18");
  refused({"--checkpoint-every", "3x"}, 2, "--checkpoint-every must be");
  refused({"--keep", "0", "--output", run}, 2, "--keep");
  refused({"--resume-anyway", "lr"}, 2, "this run starts");
  refused({"--on-nan", "skip"}, 2, "--on-nan skip goes back to a checkpoint, and this run keeps none");
  refused({"--resume", run, "--resume-anyway", "model"}, 2, "--resume-anyway");
  CHECK(metrics_in(run + "/metrics.jsonl").back().at("event") == "end");  // as it was

  const auto dry = run_process(train(common + Words{"--output", (folder / "dry").string(), "--dry-run"}));
  CHECK(dry.exit_code == 0);
  CHECK_FALSE(fs::exists(folder / "dry"));
}
