// lockstep checkpoint ls, verify and export, and eval RUN.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("checkpoints are listed, verified, exported and evaluated") {
  const TempFolder folder;
  const auto run = (folder / "run").string(), exported = (folder / "w.safetensors").string();
  const Words flags = {"--epochs", "3",         "--limit-test", "64",       "--seed",
                       "5",        "--devices", "cpu",          "--output", run};
  REQUIRE(run_process(train(flags)).exit_code == 0);
  const auto done = [&](const Words& words) {
    const auto result = run_process(program(words));
    INFO(words[0] << " " << words[1] << "\n" << result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    return result.out;
  };
  const auto evaluated = [&](const Words& which) {
    auto result =
        json::parse(done(Words{"eval", "--limit-test", "64", "--devices", "cpu", "--json"} + which));
    result.erase("test_seconds");
    result.erase("weights");
    return result;
  };
  const auto list = json::parse(done({"checkpoint", "ls", run, "--json"})).at("checkpoints");
  REQUIRE(list.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(list[i].at("step") == 5 * (i + 1));
    CHECK(list[i].at("epoch") == i + 1);
  }
  CHECK(list[2].at("names")[0] == "last");
  const auto metrics = events_named("epoch", metrics_in(run + "/metrics.jsonl"));
  CHECK(list[1].at("test_accuracy") == metrics.at(1).at("test_accuracy"));
  const auto text = lines(done({"checkpoint", "ls", run}));
  REQUIRE(text.size() == 5);
  CHECK_THAT(with_single_blanks(text[2]), Catch::Matchers::StartsWith("5 1 0."));
  CHECK_THAT(done({"checkpoint", "export", run, exported}), ContainsSubstring("step-00000015 saved to"));
  const auto whole = read_file(exported);
  CHECK_THAT(refusal(program({"checkpoint", "export", run, exported}), 7),
             ContainsSubstring("already exists") && ContainsSubstring("--overwrite"));
  CHECK_THAT(refusal(program({"checkpoint", "export", run, (folder / "none/w").string()}), 7),
             ContainsSubstring("none/w"));
  CHECK(read_file(exported) == whole);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);  // no other file in its place
  done({"checkpoint", "export", run, exported, "--overwrite"});
  const auto newest = evaluated({run});
  CHECK(newest.at("test_accuracy") == metrics.at(2).at("test_accuracy"));
  const Words run_data = {"--data", "synthetic", "--seed", "5"};
  CHECK(evaluated(Words{"--weights", exported} + run_data) == newest);
  CHECK(newest.at("data_origin") == "made from seed 5");
  CHECK(evaluated({run, "--seed", "0"}).at("data_origin") == "made from seed 0");
  const auto first = list[0].at("path").get<std::string>();
  CHECK_THAT(refusal(program({"eval", run, "--weights", exported}), 2),
             ContainsSubstring("two names of weights"));
  CHECK(evaluated({first}) == evaluated(Words{"--weights", first + "/model.safetensors"} + run_data));
  CHECK_THAT(done({"checkpoint", "verify", first}), ContainsSubstring("step-00000005: whole"));

  write_file(folder / "run/checkpoints/step-00000010/state.json", "{}");
  const auto verified = run_process(program({"checkpoint", "verify", run}));
  CHECK(verified.exit_code == 4);
  CHECK_THAT(verified.out, ContainsSubstring("step-00000005: whole") &&
                               ContainsSubstring("step-00000010: the checkpoint") &&
                               ContainsSubstring("step-00000015: whole"));
  CHECK_THAT(verified.err, ContainsSubstring("1 of 3 checkpoints is damaged"));
  CHECK_THAT(done({"checkpoint", "ls", run}), ContainsSubstring("10 its state cannot be read") ||
                                                  ContainsSubstring("10  its state cannot be read"));
}

TEST_CASE(
    "with --ema the average is tested, saved and exported, and the trained weights are exported on request") {
  const TempFolder folder;
  const auto file = [&](const char* name) { return (folder / name).string(); };
  const auto run = file("run");
  const auto run_of = [&](const Words& more) {
    const auto result =
        run_process(train(Words{"--epochs", "2", "--limit-test", "64", "--devices", "cpu"} + more));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return result.out;
  };
  const auto said = run_of({"--ema", ".9", "--output", run, "--save", file("saved")});
  CHECK_THAT(said, ContainsSubstring("averaged weights saved to"));
  run_of({"--save", file("without")});
  const auto done = [&](const Words& words) {
    const auto result = run_process(program(words));
    INFO(result.err);
    CHECK(result.exit_code == 0);
    return result.out;
  };
  done({"checkpoint", "export", run, file("averaged")});
  done({"checkpoint", "export", run, file("trained"), "--trained"});
  CHECK(read_file(file("averaged")) == read_file(file("saved")));
  CHECK(read_file(file("trained")) == read_file(file("without")));
  CHECK(read_file(file("trained")) != read_file(file("averaged")));
  const auto tested = [&](const Words& which) {
    return json::parse(
               done(Words{"eval", "--limit-test", "64", "--devices", "cpu", "--threads", "1", "--json"} +
                    which))
        .at("test_loss");
  };
  const auto metrics = events_named("epoch", metrics_in(run + "/metrics.jsonl"));
  CHECK(tested({run}) == metrics.back().at("test_loss"));
  const Words data = {"--data", "synthetic"};
  CHECK(tested(Words{"--weights", file("saved")} + data) == metrics.back().at("test_loss"));
  CHECK(tested(Words{"--weights", file("trained")} + data) != metrics.back().at("test_loss"));
}

TEST_CASE("checkpoint commands and eval refuse what is no run and no checkpoint") {
  const TempFolder folder;
  const auto nothing = folder.path().string(), file = (folder / "w").string();
  CHECK_THAT(refusal(program({"checkpoint", "ls", nothing}), 4), ContainsSubstring("is no run"));
  CHECK_THAT(refusal(program({"checkpoint", "verify", nothing}), 4), ContainsSubstring("is no run"));
  for (const auto* command : {"ls", "verify"}) {
    CHECK_THAT(refusal(program({"checkpoint", command, file}), 4),
               ContainsSubstring("there is no such folder"));
  }
  fs::create_directories(folder / "run/checkpoints/step-00000005");
  CHECK_THAT(refusal(program({"eval", (folder / "run/checkpoints").string()}), 4),
             ContainsSubstring("is the folder of a run's checkpoints"));
  CHECK_THAT(refusal(program({"checkpoint", "export", nothing, file}), 4),
             ContainsSubstring("no whole checkpoint"));
  CHECK_THAT(refusal(program({"eval", file}), 4), ContainsSubstring("there is no such folder"));
  write_file(folder / "weights", "no folder");
  CHECK_THAT(refusal(program({"eval", (folder / "weights").string()}), 4),
             ContainsSubstring("it is a file") && ContainsSubstring("--weights"));
  CHECK_THAT(refusal(program({"eval"}), 2), ContainsSubstring("no weights are named"));
  CHECK_FALSE(fs::exists(file));
}
