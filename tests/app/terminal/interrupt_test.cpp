// What a run that is stopped by a signal says and leaves.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;

TEST_CASE("Ctrl-C ends a run after the step under way, with its code") {
  const auto result = stopped_run({"--log-every", "1"}, SIGINT, "step 2/5");
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.err, ContainsSubstring("lockstep: Ctrl-C noted, waiting for the current step; ") &&
                             ContainsSubstring("stopped by Ctrl-C after step"));
  CHECK_THAT(result.out, !ContainsSubstring("test acc:") && !ContainsSubstring("saved"));
}

TEST_CASE("a run that is stopped keeps the weights and the trace of the steps it took") {
  const TempFolder folder;
  const auto weights = (folder / "stopped").string(), trace = (folder / "trace.json").string();
  const Words two = {"--devices", "cpux2"};
  const auto result =
      stopped_run(two + Words{"--log-every", "1", "--save", weights, "--trace", trace}, SIGTERM, "step 2/5");
  CHECK(result.exit_code == 143);
  CHECK_THAT(result.out, ContainsSubstring("weights saved to " + weights) &&
                             ContainsSubstring("trace written to " + trace));
  CHECK(nlohmann::json::parse(bytes_of(trace)).size() > 0);

  std::smatch at;
  REQUIRE(std::regex_search(result.err, at,
                            std::regex("stopped by SIGTERM after step ([0-9]) of epoch ([0-9]+)")));
  const auto steps = std::to_string(5 * (std::stoi(at[2]) - 1) + std::stoi(at[1]));
  const auto same = (folder / "same").string();
  const auto again =
      run_process(train(two + Words{"--epochs", "1000000", "--limit-steps", steps, "--save", same}));
  REQUIRE(again.exit_code == 0);
  CHECK(bytes_of(weights) == bytes_of(same));
}

TEST_CASE("SIGHUP stops a run as SIGTERM does") {
  const TempFolder folder;
  const auto weights = (folder / "stopped").string();
  const auto result = stopped_run({"--log-every", "1", "--save", weights}, SIGHUP, "step 2/5");
  CHECK(result.exit_code == 129);
  CHECK_THAT(result.err, ContainsSubstring("stopped by SIGHUP after step"));
  CHECK(std::filesystem::exists(weights));
}

// The pipe for the trace has its reader in the moment in which the run has opened it, after its metrics.
TEST_CASE("a signal that comes when the output files are open is heeded, and leaves none") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const TempFolder folder;
  const auto metrics = (folder / "run.jsonl").string(), pipe = (folder / "pipe").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  auto process = train({"--epochs", "1000000", "--metrics", metrics, "--trace", pipe});
  int reader = -1;
  process.on_start = [&](pid_t pid) {
    reader = ::open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
    ::kill(pid, signal);
  };
  const auto result = run_process(process);
  ::close(reader);
  CHECK(result.exit_code == 128 + signal);
  CHECK_FALSE(std::filesystem::exists(metrics));
}

// An evaluation of minutes, of which a signal waits for one block.
TEST_CASE("a signal ends an evaluation, and what was learnt before it is kept") {
  const TempFolder folder;
  const auto weights = (folder / "stopped").string();
  const auto result = stopped_at("step 1/", SIGINT,
                                 train({"--model", "resnet18", "--batch-size", "4", "--limit-train", "8",
                                        "--limit-steps", "1", "--save", weights}));
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.err, ContainsSubstring("stopped by Ctrl-C after step 1 of epoch 1") ||
                             ContainsSubstring("stopped by Ctrl-C during the evaluation after epoch 1"));
  CHECK(std::filesystem::exists(weights));
}

TEST_CASE("a run that is stopped does not keep weights that are not finite") {
  const TempFolder folder;
  const auto weights = (folder / "diverged").string();
  // Its loss is finite until step 4, which is reported, and not from step 5 on, which ends the run by itself.
  // The signal stops it after step 5, or, where it comes that soon, after step 4; or it finds nothing left to
  // stop, and ends the process as it closes.
  const auto result = stopped_run({"--log-every", "4", "--lr", "1e4", "--save", weights}, SIGINT, "step 4/5");
  const bool still_finite = result.err.find("after step 4 of epoch 1") != std::string::npos;
  if (result.signal == 0) {
    CHECK(result.exit_code == (still_finite ? 130 : 6));
  } else {
    CHECK(result.signal == SIGINT);
  }
  CHECK(std::filesystem::exists(weights) == still_finite);
}
