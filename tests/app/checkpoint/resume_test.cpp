// Runs that are stopped, killed and gone on with end as the run without a break.
#include <signal.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/run_files/event_file.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const Words kCommon = {"--log-every", "2", "--print-weights-hash", "--limit-test", "64"};

std::string hash_in(const std::string& out) { return found_in(out, "weights sha256: ([0-9a-f]{64})\n"); }

const std::set<std::string> kTimes = {"step_ms",   "images_per_second", "resident_bytes",
                                      "data_ms",   "compute_ms",        "sync_ms",
                                      "update_ms", "train_seconds",     "test_seconds"};

// What does not depend on the clock, of all lines but the first and the last.
std::vector<json> timeless_events(const fs::path& run) {
  auto events = metrics_in((run / "metrics.jsonl").string());
  REQUIRE(events.size() > 2);
  for (auto& event : events) {
    for (const auto& key : kTimes) event.erase(key);
  }
  events.erase(events.begin());
  events.pop_back();
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
  // As when it was killed after its last checkpoint.
  CHECK(run_process(train(words + Words{"--save", (folder / "w.safetensors").string()})).exit_code == 0);
  CHECK(fs::exists(folder / "w.safetensors"));
}

TEST_CASE("a run's folder has its log, its environment and its plots, and a resumed run goes on in them") {
  const TempFolder folder;
  const auto run = folder / "run";
  const Words words = kCommon + Words{"--epochs", "3", "--devices", "cpu", "--output", run.string()};
  const auto first = run_process(train(words + Words{"--limit-steps", "7", "--quiet"}));
  REQUIRE(first.exit_code == 0);
  CHECK(lines(first.out).size() == 2);  // the hash and the last line
  const auto log = read_file(run / "train.log");
  CHECK_THAT(log, ContainsSubstring(" # command    lockstep train --epochs") ||
                      ContainsSubstring(" # command    lockstep train --data"));
  for (const std::string text :
       {"  recipe     lenet-scratch\n", " run folder: ", " epoch 1/3 | step 4/5 | loss ",
        "     lr 0.2 | ms per step", " checkpoint of step 7 in ", " stopped after 7 steps",
        " weights sha256: ", " test acc: "}) {
    CHECK_THAT(log, ContainsSubstring(text));
  }
  const auto environment = read_file(run / "env.json");
  const auto parsed = json::parse(environment);
  CHECK_THAT(parsed.at("command").get<std::string>(), ContainsSubstring("--limit-steps 7"));
  CHECK(parsed.at("libraries").contains("LibTorch"));
  const auto svg = read_file(run / "plots/accuracy_and_loss.svg");

  const auto second = run_process(train(words + Words{"--resume", "auto", "--metrics", "-"}));
  REQUIRE(second.exit_code == 0);
  const auto longer = read_file(run / "train.log");
  REQUIRE(longer.starts_with(log));
  for (const std::string text :
       {" # command    lockstep train", " resumed from ", " epoch 3/3 | step 4/5", " test acc: "}) {
    CHECK_THAT(longer.substr(log.size()), ContainsSubstring(text));
  }
  CHECK(read_file(run / "env.json") == environment);
  const std::string no_cairo = "the plots of the run are not renewed: this lockstep was built without cairo";
  if (second.err.find(no_cairo) != std::string::npos) {
    CHECK(lines(second.err).size() == 1);
    CHECK_FALSE(fs::exists(run / "plots/accuracy_and_loss.svg"));
    return;
  }
  CHECK_THAT(svg, ContainsSubstring("<svg"));
  CHECK_THAT(read_file(run / "plots/accuracy_and_loss.svg"), ContainsSubstring("<svg"));
  CHECK(read_file(run / "plots/accuracy_and_loss.svg") != svg);
  CHECK(read_file(run / "plots/accuracy_and_loss.png").starts_with("\x89PNG"));
}

TEST_CASE("the error that ends a run is in its log") {
  const TempFolder folder;
  const auto run = folder / "run";
  const auto result =
      run_process(train({"--epochs", "3", "--devices", "cpu", "--lr", "1e30", "--output", run.string()}));
  CHECK(result.exit_code == 6);
  CHECK_THAT(read_file(run / "train.log"),
             ContainsSubstring(" error: the loss was not finite") && ContainsSubstring(" warning: "));
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
  const Words words = {"--epochs", "4", "--lr", "1e30", "--on-nan", "skip", "--limit-test", "64"};
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

// The cosine's rate at step s of n is lr (1 + cos(pi s / n)) / 2. A limit of 640 images is 5 steps of 128, 10
// of 64.
TEST_CASE("a run goes on with another batch size after an epoch, in a folder of its own") {
  const TempFolder folder;
  const auto first = (folder / "first").string(), second = (folder / "second").string();
  const Words words = {"--limit-test", "64",       "--devices", "cpu",  "--schedule",
                       "cosine",       "--epochs", "3",         "--lr", ".1"};
  REQUIRE(run_process(train(words + Words{"--limit-steps", "5", "--output", first})).exit_code == 0);
  const auto changed =
      words + Words{"--resume", first, "--resume-anyway", "batch-size", "--batch-size", "64"};
  const auto refused = run_process(train(changed + Words{"--output", first}));
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("it needs a folder of its own"));

  const auto result = run_process(train(changed + Words{"--output", second, "--log-every", "1"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("(10 of 30 steps done, counted in the new batches)"));
  std::vector<json> steps;
  for (const auto& event : metrics_in(second + "/metrics.jsonl")) {
    if (event.at("event") == "step") steps.push_back(event);
  }
  REQUIRE(steps.size() == 20);
  CHECK(steps.front().at("epoch") == 2);
  CHECK(steps.back().at("step") == 10);
  CHECK(std::abs(steps.front().at("lr").get<double>() - .1 * .75) <
        1e-6);  // step 10 of 30: cos(pi / 3) = 1/2
  CHECK(newest_step(first) == 5);
  CHECK(newest_step(second) == 30);
  CHECK(fs::exists(second + "/checkpoints/step-00000010"));  // what it has begun with

  const auto again =
      run_process(train(words + Words{"--batch-size", "64", "--resume", "auto", "--output", second}));
  CHECK_THAT(again.out, ContainsSubstring("30 steps"));
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
