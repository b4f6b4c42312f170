// A launcher that starts all processes again: they go on from the newest checkpoint.
#include <lockstep/tests/catch.h>
#include <string>

#include <lockstep/tests/app/launch/script.h>
#include <lockstep/tests/app/processes/hand_started.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

// $2: the run's folder. The rest: the command. In the first life process 1 is killed when there is a
// checkpoint.
TEST_CASE(
    "processes that are started again go on from the newest checkpoint, and end with the same weights") {
  const Script script(R"(run=$2; shift; shift
if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  "$@" & child=$!
  until [ -e "$run/checkpoints/last" ]; do sleep .02; done
  kill -9 $child
  wait $child
  exit
fi
exec "$@"
)");
  const auto run = script.file("run").string();
  const auto command = train({"--devices", "cpu", "--limit-steps", "75", "--epochs", "1000", "--limit-test",
                              "64", "--print-weights-hash", "--timeout", "60"})
                           .command;
  const Words kept = {"--output", run, "--checkpoint-every", "1"};
  const auto result = run_process(script.launch(2, {"--max-restarts", "2"}, Words{run} + command + kept));
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("resumed from " + run + "/checkpoints/step-"));
  const auto whole = run_process(program(Words{"launch", "-n", "2", "--"} + command));
  REQUIRE(whole.exit_code == 0);
  const std::string hash = "weights sha256: ([0-9a-f]{64})\n";
  CHECK(found_in(result.out, hash) == found_in(whole.out, hash));
}

TEST_CASE("a launch that may be started again leaves the folder of another run alone") {
  const TempFolder folder;
  const auto run = folder / "run";
  const Words words = {"--devices", "cpu", "--limit-test", "64", "--output", run.string()};
  run_ending(0, train(words + Words{"--epochs", "1"}));
  const auto metrics = read_file(run / "metrics.jsonl"), config = read_file(run / "config.toml");
  const auto result = run_ending(7, program(Words{"launch", "-n", "2", "--max-restarts", "2", "--"} +
                                                train(words + Words{"--epochs", "2"}).command,
                                            {{"TMPDIR", folder.path().string()}}));
  CHECK_THAT(result.err,
             ContainsSubstring("(restart 2 of 2)") && ContainsSubstring("already exists and is not empty"));
  CHECK(read_file(run / "metrics.jsonl") == metrics);
  CHECK(read_file(run / "config.toml") == config);
}
