// The folder of a run: what it has, how a run goes on in it, and from a damaged checkpoint or with other
// flags.
#include <signal.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train/checkpoint/resumed_runs.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/support/in_folder.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("a run that goes on by its own command keeps the numbers of --normalize auto") {
  const TempFolder folder;
  const Words words =
      kCommon + Words{"--devices", "cpu", "--output", (folder / "run").string(), "--checkpoint-every", "1"};
  // Other numbers than those of the images, as from a sample of them.
  const auto first = run_process(train(words + Words{"--normalize", "0.5:0.25", "--limit-steps", "1"}));
  REQUIRE(first.exit_code == 0);
  const auto second =
      run_process(train(words + Words{"--normalize", "auto", "--resume", "auto", "--limit-steps", "2"}));
  INFO(second.err);
  CHECK(second.exit_code == 0);
  CHECK_THAT(second.out + second.err, ContainsSubstring("normalised by mean 0.5 and deviation 0.25"));
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

TEST_CASE("a loss that is not finite ends the run, and its log has the error") {
  const TempFolder folder;
  const auto run = folder / "run";
  const auto result =
      run_ending(6, train({"--epochs", "3", "--devices", "cpu", "--lr", "1e30", "--output", run.string()}));
  CHECK_THAT(result.err, ContainsSubstring("the loss was not finite at epoch 1, step ") &&
                             ContainsSubstring("on replica 0 (cpu)") && ContainsSubstring("hint: "));
  CHECK_THAT(result.out, !ContainsSubstring("test acc"));
  CHECK_THAT(read_file(run / "train.log"),
             ContainsSubstring(" error: the loss was not finite") && ContainsSubstring(" warning: "));
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
  const auto shorter = run_process(train(words + Words{"--resume", "auto", "--limit-steps", "7"}));
  CHECK(shorter.exit_code == 0);
  CHECK_THAT(shorter.out, ContainsSubstring("step-00000015 (15 steps done, this run ends after 7)") &&
                              ContainsSubstring("this run ends after 7 steps, the checkpoint has 15: "));
}

TEST_CASE("a file that would replace one of the run's folder is refused") {
  const TempFolder folder;
  const auto run = folder / "run";
  const Words words = kCommon + Words{"--epochs", "3", "--devices", "cpu"};
  REQUIRE(run_process(train(words + Words{"--limit-steps", "7", "--output", run.string()})).exit_code == 0);
  fs::create_directory_symlink(run, folder / "link");
  const auto metrics = read_file(run / "metrics.jsonl"), config = read_file(run / "config.toml");
  const std::vector<std::pair<std::string, fs::path>> files = {{"--metrics", run / "metrics.jsonl"},
                                                               {"--save", folder / "link/config.toml"},
                                                               {"--trace", run / "new.json"}};
  for (const auto& [flag, path] : files) {
    for (const auto& resume :
         {Words{"--resume", run.string()}, Words{"--output", run.string() + "/", "--resume", "auto"}}) {
      const auto text = refusal(train(words + resume + Words{flag, path.string(), "--overwrite"}), 2);
      CHECK_THAT(text, ContainsSubstring(flag + " '" + path.string() + "' is in the run's folder"));
    }
  }
  CHECK(read_file(run / "metrics.jsonl") == metrics);
  CHECK(read_file(run / "config.toml") == config);
  CHECK_FALSE(fs::exists(run / "new.json"));
  auto piped = train(words + Words{"--resume", run.string(), "--metrics", "/dev/stdout"});
  CHECK(run_process(piped).exit_code == 0);  // a pipe is in no folder
  const auto beside = (folder / "run.safetensors").string();
  CHECK(run_process(train(words + Words{"--resume", run.string(), "--save", beside})).exit_code == 0);
}

TEST_CASE("a run goes on with the same images and labels only, whatever files they are in") {
  const SmallData data(640, 64), longer(704, 64);  // the same first 640 images
  const TempFolder folder;
  const auto run = folder / "run";
  const auto words = [&](const SmallData& set) {
    return Words{"--data", set.folder(), "--limit-train", "640", "--epochs", "3", "--output", run.string()};
  };
  REQUIRE(run_process(train(words(data) + Words{"--limit-steps", "7"})).exit_code == 0);
  const auto labels = fs::path(longer.folder()) / "train-labels-idx1-ubyte";
  const auto whole = read_file(labels);
  auto other = whole;
  other[8 + 639] = static_cast<char>(9 - other[8 + 639]);  // after a header of 8 bytes; labels are 0 to 9
  write_file(labels, other);
  const auto metrics = read_file(run / "metrics.jsonl");
  const auto refused = run_process(train(words(longer) + Words{"--resume", "auto"}));
  CHECK(refused.exit_code == 4);
  CHECK(std::regex_search(refused.err, std::regex("the checkpoint's run has train data hash [0-9a-f]{32}, "
                                                  "this one has [0-9a-f]{32}\nhint: train on the same data "
                                                  "\\(--data\\), or start a new run\n")));
  CHECK(read_file(run / "metrics.jsonl") == metrics);
  CHECK(newest_step(run) == 7);
  write_file(labels, whole);
  const auto resumed = run_process(train(words(longer) + Words{"--resume", "auto"}));
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(newest_step(run) == 15);
}

TEST_CASE("a run that goes on on another number of replicas says what that changes") {
  const TempFolder folder;
  const Words words = {"--model",       "resnet18",
                       "--batch-size",  "4",
                       "--limit-train", "12",
                       "--epochs",      "1",
                       "--output",      (folder / "run").string(),
                       "--limit-test",  "4",
                       "--bn",          "average"};
  REQUIRE(run_process(train(words + Words{"--devices", "cpu", "--limit-steps", "1"})).exit_code == 0);
  const auto go_on = [&](const std::string& devices, const std::string& limit) {
    const auto result =
        run_process(train(words + Words{"--devices", devices, "--limit-steps", limit, "--resume", "auto"}));
    CHECK(result.exit_code == 0);
    return result.err;
  };
  CHECK(go_on("cpu", "2").empty());
  CHECK(go_on("cpux2", "3") ==
        "lockstep: warning: devices [cpu, cpu] instead of [cpu]: the next steps may differ in "
        "their last bits from those without a break\n"
        "lockstep: warning: 2 replicas where the checkpoint has 1: all go on with its batch-norm statistics "
        "(--bn average)\n");
}

TEST_CASE("with --on-save-error continue a run trains on while its checkpoints cannot be written") {
  const TempFolder folder;
  const auto checkpoints = folder / "run/checkpoints", elsewhere = folder / "elsewhere";
  const Words words = {"--devices", "cpu", "--output", (folder / "run").string(), "--checkpoint-every", "1"};
  auto process = train(kCommon + words + Words{"--epochs", "1000000", "--on-save-error", "continue"});
  int64_t without = 0;  // epochs that were done when the folder was taken away
  bool sent = false;
  process.on_output = [&](pid_t pid, const std::string& out) {
    const auto epochs = std::ranges::count_if(
        lines(out), [](const auto& line) { return line.find("| test loss ") != std::string::npos; });
    if (without == 0 && epochs > 0) {
      fs::rename(checkpoints, elsewhere);
      without = epochs;
    } else if (!sent && without > 0 && epochs >= without + 2) {
      ::kill(pid, SIGTERM);
      sent = true;
    }
  };
  const auto stopped = run_process(process);
  CHECK(stopped.exit_code == 143);
  CHECK_THAT(stopped.err, ContainsSubstring("warning: cannot write ") && ContainsSubstring("No such file"));
  fs::rename(elsewhere, checkpoints);
  const auto step = newest_step(folder / "run");
  const auto limit = std::to_string(step + 3);
  const auto end = run_process(
      train(kCommon + words + Words{"--epochs", "1000000", "--resume", "auto", "--limit-steps", limit}));
  INFO(end.err);
  CHECK(end.exit_code == 0);
  CHECK_THAT(end.out, ContainsSubstring("(" + std::to_string(step) + " of " + limit + " steps done)"));
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

  // A restart would go on from the first run again.
  auto under_launcher = train(changed);
  under_launcher.environment.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TORCHELASTIC_MAX_RESTARTS", "1"}});
  const auto unnamed = run_process(under_launcher);
  CHECK(unnamed.exit_code == 2);
  CHECK_THAT(unnamed.err, ContainsSubstring("name the new folder: --output DIR"));

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

TEST_CASE("a dry run finds that a numbered run could not be made") {
  const TempFolder folder;
  write_file(folder / "runs", "a file");
  const InFolder here(folder.path());
  const auto result = run_process(train({"--dry-run", "--checkpoint-every", "1epoch"}));
  CHECK(result.exit_code == 7);
  CHECK_THAT(result.err, ContainsSubstring("cannot make the run folder 'runs': it is a file\n"
                                           "hint: choose another name\n"));
}

TEST_CASE("a dry run says from where it would go on, and metrics which settings have changed") {
  const TempFolder folder;
  const Words words = {"--limit-test", "64",  "--devices", "cpu", "--output", (folder / "run").string(),
                       "--resume",     "auto"};
  run_ending(0, train(words + Words{"--epochs", "1"}));
  const Words longer = words + Words{"--epochs", "2"};
  const auto dry = run_ending(0, train(longer + Words{"--dry-run"}));
  CHECK_THAT(dry.out, ContainsSubstring("\nwould resume from ") &&
                          ContainsSubstring("/checkpoints/step-00000005 (5 of 10 steps done)\n"));
  const auto as_json = run_ending(0, train(longer + Words{"--dry-run", "--json"}));
  CHECK(json::parse(as_json.out).at("total_steps") == 10);
  run_ending(0, train(longer));
  const auto resumed = events_named("resumed", metrics_in(folder / "run/metrics.jsonl"));
  REQUIRE(resumed.size() == 1);
  CHECK(resumed[0] ==
        json{{"event", "resumed"}, {"steps", 5}, {"changed", {{"epochs", 2}, {"total_steps", 10}}}});
}

TEST_CASE("the checkpoint that a new folder begins with may be its best one") {
  const TempFolder folder;
  const auto first = folder / "first", second = folder / "second";
  const Words words = {"--limit-test", "64", "--devices", "cpu"};
  REQUIRE(run_process(train(words + Words{"--epochs", "1", "--output", first.string()})).exit_code == 0);
  const Words again = words + Words{"--output", second.string(), "--resume", first.string()};
  REQUIRE(run_process(train(again + Words{"--epochs", "1"})).exit_code == 0);
  CHECK(fs::read_symlink(second / "checkpoints/best") == "step-00000005");
}

TEST_CASE("metrics that were cut short by hand are warned of, and new lines begin in a line of their own") {
  const TempFolder folder;
  const auto path = folder / "run/metrics.jsonl";
  const Words words = {"--limit-test", "64",  "--devices", "cpu", "--output", (folder / "run").string(),
                       "--resume",     "auto"};
  REQUIRE(run_process(train(words + Words{"--epochs", "2"})).exit_code == 0);
  const auto whole = lines(read_file(path));
  REQUIRE(whole.size() == 5);  // plan, epoch, last step, epoch, end
  write_file(path, whole[0] + "\n" + whole[1] + "\n" + whole[2].substr(0, 50));
  const auto result = run_process(train(words + Words{"--epochs", "3"}));
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.err, ContainsSubstring("metrics.jsonl' has lost lines since the checkpoint was written"));
  const auto mended = metrics_in(path);  // each line is whole
  std::vector<std::string> events;
  for (const auto& event : mended) events.push_back(event.at("event"));
  CHECK(events == Words{"plan", "epoch", "resumed", "step", "epoch", "end"});
  CHECK(mended[4].at("epoch") == 3);
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
  write_file(folder / "file", "");
  CHECK_THAT(refusal(train(common + Words{"--output", (folder / "file/run").string(), "--dry-run"}), 7),
             ContainsSubstring("cannot make the run folder"));
}
