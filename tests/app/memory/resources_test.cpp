// What a run takes of the machine: threads and memory.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <iterator>

#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("beside main, a run has its replicas' threads and no others") {
  struct Case {
    std::string devices, threads;
    long expected;  // main; for each replica its worker, the worker's helpers, and a thread for communication
  };
  const auto [devices, threads, expected] =
      GENERATE(Case{"cpu", "1", 1 + 2}, Case{"cpu", "2", 1 + 3}, Case{"cpux2", "2", 1 + 2 * 3});
  INFO(devices << " with " << threads);
  long counted = 0;
  const Words words = {"--log-every", "1", "--devices", devices, "--threads", threads};
  const auto result = stopped_run(words, SIGINT, "step 2/5", [&](pid_t pid) {
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task");
    counted = std::distance(begin(tasks), end(tasks));
  });
  CHECK(result.exit_code == 130);
  CHECK(counted == expected);
}

TEST_CASE("a run that cannot fit into memory is refused, as bench step refuses it") {
  if (available_bytes() > int64_t{500'000'000'000})
    SKIP_CASE("this machine has the 600 GB that it would take");
  const Words words = {
      "--recipe", "resnet18-pytorch", "--data", "synthetic",   "--devices", "cpu", "--batch-size",
      "60000",    "--threads",        "1",      "--precision", "fp64"};
  const lockstep::testing::TempFolder folder;
  const auto metrics = (folder / "run.jsonl").string();
  for (const Words& command :
       {Words{"train", "--metrics", metrics}, Words{"train", "--dry-run"}, Words{"bench", "step"}}) {
    CHECK_THAT(refusal(program(command + words), 8),
               ContainsSubstring("training 60,000 images per step on [cpu] would take ") &&
                   ContainsSubstring("are free\nhint: use a smaller --batch-size, or fewer replicas"));
  }
  CHECK_FALSE(std::filesystem::exists(metrics));
}

TEST_CASE("more threads than cores, and a rate far above the recipe's, are warned of") {
  const auto warnings = [](const Words& words) {
    const auto result = run_process(train(words + Words{"--dry-run"}));
    CHECK(result.exit_code == 0);
    return result.err;
  };
  CHECK_THAT(warnings({"--threads", "1000"}),
             ContainsSubstring("warning: --threads 1000: this process has "));
  CHECK(warnings({"--lr", "5.9"}).empty());  // below 30 x .2
  CHECK_THAT(warnings({"--lr", "6.2"}),
             ContainsSubstring(
                 "warning: a learning rate of 6.2 is 31 times the 0.2 that lenet-scratch takes with sgd"));
  CHECK(warnings({"--optimizer", "adamw"}).empty());
  CHECK_THAT(warnings({"--optimizer", "adamw", "--lr", ".2"}),
             ContainsSubstring("0.2 is 200 times the 0.001 that lenet-scratch takes with adamw"));
}

#ifndef __SANITIZE_ADDRESS__  // which has an idea of its own of stacks, and keeps what is freed for a while
TEST_CASE("where the system gives no other thread, that is said, with a code of its own") {
  // A thread's stack is then larger than all addresses: none can start, whoever asks.
  for (const Words& words : {Words{"train", "--data", "synthetic", "--limit-train", "64"},
                             Words{"bench", "allreduce", "--devices", "cpux2"}}) {
    Process process;
    process.command =
        Words{"/bin/sh", "-c", "ulimit -s 68719476736 && exec \"$@\"", "sh", LOCKSTEP_PROGRAM} + words;
    const auto result = run_process(process);
    INFO(words[0] << ": " << result.err);
    if (result.err.find("imit") != std::string::npos && result.err.find("lockstep:") == std::string::npos) {
      SKIP_CASE("this shell may not raise its stack's limit");
    }
    CHECK(result.exit_code == 8);
    CHECK_THAT(result.err, ContainsSubstring("more threads are needed, the system starts only 0") ||
                               ContainsSubstring("the system cannot start another thread"));
    CHECK_THAT(result.err, ContainsSubstring("\nhint: use fewer replicas"));
  }
}

TEST_CASE("a run does not grow: after 200 steps it holds what it held after 20") {
  const std::string devices = GENERATE("cpu", "cpux2");
  const auto events = metrics_of({"--limit-train", "12800", "--batch-size", "64", "--epochs", "1",
                                  "--log-every", "20", "--devices", devices});
  std::vector<double> resident;
  for (const auto& step : events_named("step", events)) resident.push_back(step.at("resident_bytes"));
  REQUIRE(resident.size() == 10);
  INFO(resident.front() << " and " << resident.back() << " bytes");
  // malloc's heaps settle, by some megabytes. The images of each step, were they kept, would be 36 MB.
  CHECK(resident.back() - resident.front() <= 10e6);
}
#endif
