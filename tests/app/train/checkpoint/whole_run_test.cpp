// Runs that are resumed when nothing is left to do.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/train/checkpoint/resumed_runs.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("a run that is done says so when it is resumed, and changes nothing") {
  const TempFolder folder;
  const Words words =
      kCommon + Words{"--epochs", "3", "--output", (folder / "run").string(), "--resume", "auto"};
  const auto first = run_process(train(words));
  REQUIRE(first.exit_code == 0);
  const auto metrics = read_file(folder / "run/metrics.jsonl");
  const auto again = run_process(train(words));
  CHECK(again.exit_code == 0);
  CHECK_THAT(again.out, ContainsSubstring("all 15 steps of this run are done: there is nothing left to do"));
  CHECK(lines(again.out).back() == lines(first.out).back());  // test accuracy, seconds per epoch, devices
  CHECK(lines(again.out).at(lines(again.out).size() - 2) == lines(first.out).at(lines(first.out).size() - 2));
  CHECK(read_file(folder / "run/metrics.jsonl") == metrics);
  CHECK(newest_step(folder / "run") == 15);
  // As when it was killed after its last checkpoint.
  CHECK(run_process(train(words + Words{"--save", (folder / "w.safetensors").string()})).exit_code == 0);
  CHECK(fs::exists(folder / "w.safetensors"));
}

TEST_CASE("a run that is done tells the metrics of --metrics so, and its folder's if they had no end yet") {
  const TempFolder folder;
  const auto path = folder / "run/metrics.jsonl";
  const Words words =
      kCommon + Words{"--epochs", "3", "--output", (folder / "run").string(), "--resume", "auto"};
  REQUIRE(run_process(train(words)).exit_code == 0);
  const auto metrics = read_file(path);
  const auto again = run_process(train(words + Words{"--metrics", "-"}));
  CHECK(again.exit_code == 0);
  const auto printed = lines(again.out);
  REQUIRE(printed.size() == 2);
  CHECK(json::parse(printed[0]).at("event") == "plan");
  const auto end = json::parse(printed[1]), end_before = json::parse(lines(metrics).back());
  for (const auto* key : {"event", "status", "steps", "test_accuracy", "seconds_per_epoch", "weights_sha256"})
    CHECK(end.at(key) == end_before.at(key));
  CHECK(read_file(path) == metrics);

  // As when it was killed after its last checkpoint.
  const auto without_end = metrics.substr(0, metrics.rfind('\n', metrics.size() - 2) + 1);
  write_file(path, without_end);
  REQUIRE(run_process(train(words)).exit_code == 0);
  const auto mended = read_file(path);
  CHECK(mended.starts_with(without_end));
  CHECK(lines(mended).size() == lines(metrics).size());
  CHECK(json::parse(lines(mended).back()).at("status") == "done");
}

TEST_CASE("accuracy and time of a run that is done are not those of other devices or test images") {
  const TempFolder folder;
  const Words words = {"--epochs", "1", "--output", (folder / "run").string(), "--resume", "auto"};
  REQUIRE(run_process(train(words + Words{"--devices", "cpu", "--limit-test", "64"})).exit_code == 0);
  const Words other = GENERATE(Words{"--devices", "cpux2", "--limit-test", "64"},
                               Words{"--devices", "cpu", "--limit-test", "65"});
  const auto again = run_process(train(words + other + Words{"--quiet"}));
  CHECK(again.exit_code == 0);
  CHECK(again.out ==
        "all 5 steps of this run are done: there is nothing left to do (lockstep eval RUN tests its "
        "weights)\n");
  CHECK_THAT(again.err, !ContainsSubstring("the next steps may differ"));
  const auto end = json::parse(lines(run_process(train(words + other + Words{"--metrics", "-"})).out).back());
  CHECK(end.at("steps") == 5);
  CHECK_FALSE(end.contains("test_accuracy"));
  CHECK_FALSE(end.contains("seconds_per_epoch"));

  // Nor are they when it goes on in a new folder, and there once more.
  const Words next = other + Words{"--epochs", "1", "--output", (folder / "next").string(), "--quiet"};
  CHECK(run_process(train(next + Words{"--resume", (folder / "run").string()})).out == again.out);
  CHECK(run_process(train(next + Words{"--resume", "auto"})).out == again.out);
}

TEST_CASE("two processes find together that nothing is left to do") {
  const TempFolder folder;
  const Words words = {"--epochs", "1", "--devices", "cpu", "--print-weights-hash"};
  const auto both = [&] {
    return run_all(
        small_world(words + Words{"--resume", "auto"}, {{"--output", (folder / "run").string()}, {}}));
  };
  const auto first = both();
  REQUIRE(first[0].exit_code == 0);
  const auto again = both();
  for (const auto& one : again) {
    INFO(one.err);
    CHECK(one.exit_code == 0);
  }
  const auto before = lines(first[0].out), after = lines(again[0].out);
  CHECK_THAT(again[0].out,
             ContainsSubstring("all 5 steps of this run are done: there is nothing left to do\n"));
  CHECK(Words(after.end() - 2, after.end()) ==
        Words(before.end() - 2, before.end()));  // the hash, the last line
  CHECK(again[1].out.empty());
}

TEST_CASE("an end that says that the run has failed is replaced when nothing is left to do") {
  const TempFolder folder;
  const auto path = folder / "run/metrics.jsonl";
  const Words words = {"--epochs",     "1",   "--devices", "cpu",
                       "--limit-test", "64",  "--output",  (folder / "run").string(),
                       "--resume",     "auto"};
  REQUIRE(run_process(train(words)).exit_code == 0);
  auto metrics = read_file(path);
  metrics.replace(metrics.rfind("\"done\""), 6, "\"failed\"");
  write_file(path, metrics);
  REQUIRE(run_process(train(words)).exit_code == 0);
  CHECK(json::parse(lines(read_file(path)).back()).at("status") == "done");
  CHECK(lines(read_file(path)).size() == lines(metrics).size());
}

TEST_CASE("a run that is to end before the step it is at changes nothing") {
  const TempFolder folder;
  const Words words = kCommon + Words{"--output", (folder / "run").string(), "--resume", "auto"};
  REQUIRE(run_process(train(words + Words{"--epochs", "3", "--limit-steps", "7"})).exit_code == 0);
  const auto metrics = read_file(folder / "run/metrics.jsonl");
  for (const auto& shorter : {Words{"--epochs", "1"}, Words{"--epochs", "3", "--limit-steps", "6"}}) {
    const auto again = run_process(train(words + shorter));
    INFO(again.out << again.err);
    CHECK(again.exit_code == 0);
    CHECK_THAT(again.out,
               ContainsSubstring("\nthis run ends after " + std::string(shorter.size() == 2 ? "5" : "6") +
                                 " steps, the checkpoint has 7: there is nothing left to do") &&
                   ContainsSubstring("weights sha256: ") && !ContainsSubstring("epoch 2/") &&
                   !ContainsSubstring("test acc:"));
    CHECK_THAT(run_process(train(words + shorter + Words{"--quiet"})).out,
               ContainsSubstring("the checkpoint has 7: there is nothing left to do"));
    CHECK(read_file(folder / "run/metrics.jsonl") == metrics);
  }
}
