// The output of a run stopped by a signal, and what it keeps.
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

TEST_CASE("Ctrl-C stops a run after the current step, with its exit code") {
  const auto result = stopped_run({"--log-every", "1"}, SIGINT, "step 2/5");
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.err, ContainsSubstring("lockstep: Ctrl-C noted, waiting for the current step; ") &&
                             ContainsSubstring("stopped by Ctrl-C after step"));
  CHECK_THAT(result.out, !ContainsSubstring("test acc:") && !ContainsSubstring("saved"));
}

TEST_CASE("a stopped run keeps the weights and the trace of its steps") {
  const TempFolder folder;
  const auto weights = (folder / "stopped").string(), trace = (folder / "trace.json").string();
  const Words two = {"--devices", "cpux2"};
  const auto result =
      stopped_run(two + Words{"--log-every", "1", "--save", weights, "--trace", trace}, SIGTERM, "step 2/5");
  CHECK(result.exit_code == 143);
  CHECK_THAT(result.out, ContainsSubstring("weights saved to " + weights) &&
                             ContainsSubstring("trace written to " + trace));
  CHECK(nlohmann::json::parse(read_file(trace)).size() > 0);

  std::smatch at;
  REQUIRE(std::regex_search(result.err, at,
                            std::regex("stopped by SIGTERM after step ([0-9]) of epoch ([0-9]+)")));
  const auto steps = std::to_string(5 * (std::stoi(at[2]) - 1) + std::stoi(at[1]));
  const auto same = (folder / "same").string();
  const auto again =
      run_process(train(two + Words{"--epochs", "1000000", "--limit-steps", steps, "--save", same}));
  REQUIRE(again.exit_code == 0);
  CHECK(read_file(weights) == read_file(same));
}

TEST_CASE("a signal's answer says whether files are written, and fits 80 columns") {
  const TempFolder folder;
  const auto* flag = GENERATE("--save", "--trace", "--output");
  const auto result =
      stopped_run({"--log-every", "1", flag, (folder / "files").string()}, SIGTERM, "step 2/5");
  const std::string answer = "lockstep: SIGTERM noted, waiting for step and files; a second one ends at once";
  CHECK_THAT(result.err, ContainsSubstring(answer + "\n"));
  CHECK(answer.size() <= 80);
}

TEST_CASE("SIGHUP stops a run as SIGTERM does") {
  const TempFolder folder;
  const auto weights = (folder / "stopped").string();
  auto process = train({"--epochs", "1000000", "--log-every", "1", "--save", weights, "--progress", "plain"});
  process.on_terminal = true;
  const auto result = stopped_at("step 2/5", SIGHUP, process);
  CHECK(result.exit_code == 129);
  CHECK(std::filesystem::exists(weights));
  // One terminal shows both streams, the error last.
  const auto saved = result.out.find("weights saved to " + weights);
  const auto stopped = result.out.find("stopped by SIGHUP after step");
  REQUIRE(saved != std::string::npos);
  REQUIRE(stopped != std::string::npos);
  CHECK(saved < stopped);
}

// The run opens the trace, a pipe, after its metrics. Opening the pipe for reading waits for that moment.
TEST_CASE("a signal after the output files are opened stops the run, and leaves no file") {
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

// The evaluation would take minutes. The signal waits for one block only.
TEST_CASE("a signal stops an evaluation, and the weights trained before are kept") {
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

TEST_CASE("a stopped run does not keep weights that are not finite") {
  const TempFolder folder;
  const auto weights = (folder / "diverged").string();
  // The loss is finite until step 4, which has a line, and not from step 5 on, which ends the run anyway. The
  // signal comes after step 4 or 5. If it comes even later, it ends the process, which is about to exit.
  const auto result = stopped_run({"--log-every", "4", "--lr", "1e4", "--save", weights}, SIGINT, "step 4");
  const bool still_finite = result.err.find("after step 4 of epoch 1") != std::string::npos;
  if (result.signal == 0) {
    CHECK(result.exit_code == (still_finite ? 130 : 6));
  } else {
    CHECK(result.signal == SIGINT);
  }
  CHECK(std::filesystem::exists(weights) == still_finite);
}
