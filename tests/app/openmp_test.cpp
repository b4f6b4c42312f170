// Commands where OpenMP grants few threads, or cannot start any.
#include <lockstep/tests/catch.h>
#include <map>
#include <string>
#include <thread>

#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// A convolution of torch waits for all threads that it has asked for. A minute is far more than it needs.
Process convolution_run(const Words& words, const std::map<std::string, std::string>& environment) {
  auto process =
      program(Words{"train", "--recipe", "resnet18-pytorch", "--data", "synthetic", "--limit-train", "32",
                    "--batch-size", "16", "--limit-test", "16", "--epochs", "1"} +
                  words,
              environment);
  process.command = Words{"/usr/bin/timeout", "-s", "KILL", "60"} + process.command;
  return process;
}

}  // namespace

TEST_CASE("a run goes on with the threads that OpenMP grants, and says why they are few") {
  struct Run {
    std::string variable, value;
    Words words;
    std::string plan;
  };
  const auto more = std::to_string(std::thread::hardware_concurrency() + 1);
  for (const auto& [variable, value, words, plan] :
       {Run{"OMP_THREAD_LIMIT", "1", {"--devices", "cpu"}, "1 replica with 1 thread\n"},
        Run{"OMP_THREAD_LIMIT",
            "2",
            {"--devices", "cpux2", "--threads", "2"},
            "2 replicas with 2 threads each\n"},
        Run{"OMP_DYNAMIC",
            "true",
            {"--devices", "cpu", "--threads", more},
            "1 replica with " + more + " threads\n"},
        Run{"OMP_MAX_ACTIVE_LEVELS",
            "0",
            {"--devices", "cpu", "--threads", "2"},
            "1 replica with 2 threads\n"}}) {
    const auto result = run_process(convolution_run(words, {{variable, value}}));
    INFO(variable << ": " << result.err);
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.out, ContainsSubstring(plan));
    const bool few = value == "1" && std::thread::hardware_concurrency() > 1;
    const auto notice = "OMP_THREAD_LIMIT grants each replica 1 thread, which leaves cores idle: there are ";
    CHECK((result.err.find(notice) != std::string::npos) == few);
  }
}

TEST_CASE("a benchmark says that threads are few for those of its replicas that have too few") {
  const auto cores = std::thread::hardware_concurrency();
  const auto one_each = "cpux" + std::to_string(cores);
  const auto said = [](const Words& lists) {
    const auto result = run_process(program(Words{"bench", "step", "--data", "synthetic", "--limit-train",
                                                  "256", "--batch-size", "64", "--repeat", "1"} +
                                                lists,
                                            {{"OMP_THREAD_LIMIT", "1"}}));
    INFO(result.err);
    CHECK(result.exit_code == 0);
    return result.err.find("leaves cores idle: there are ") != std::string::npos;
  };
  CHECK_FALSE(said({"--devices", one_each}));
  CHECK(said({"--devices", "cpu", "--devices", one_each}) == (cores > 1));
}

TEST_CASE("more threads than OpenMP grants, or can start, are refused") {
  const auto refused = [](Process process, const std::map<std::string, std::string>& variables) {
    process.environment = variables;
    process.command = Words{"/usr/bin/timeout", "-s", "KILL", "60"} + process.command;
    return refusal(process, 2);
  };
  for (const Words& words :
       {Words{"train"}, {"sweep"}, {"bench", "step"}, {"bench", "allreduce"}, {"eval"}}) {
    std::string command = "lockstep";
    for (const auto& word : words) command += " " + word;
    CHECK(refused(program(words + Words{"--threads", "3"}), {{"OMP_THREAD_LIMIT", "2"}}) ==
          "lockstep: error: --threads must be at most 2, got 3: OMP_THREAD_LIMIT grants no more\n"
          "hint: unset OMP_THREAD_LIMIT, or use fewer threads; see '" +
              command + " --help'\n");
  }
  CHECK(refused(train({"--threads", "2"}), {{"OMP_STACKSIZE", "16k"}}) ==
        "lockstep: error: OpenMP cannot start 1 thread with OMP_STACKSIZE=16k: Invalid argument\n"
        "hint: unset the variable, or set it to 2M\n");
}

TEST_CASE("devices and doctor know what OpenMP grants and can start") {
  CHECK_THAT(run_process(program({"devices"}, {{"OMP_THREAD_LIMIT", "1"}})).out,
             ContainsSubstring("one replica on the CPU, 1 thread\n"));
  if (std::thread::hardware_concurrency() == 1) SKIP_CASE("one core: a replica starts no threads");
  const auto doctor = run_process(program({"doctor", "--data", "synthetic"}, {{"OMP_STACKSIZE", "16k"}}));
  CHECK(doctor.exit_code == 1);
  CHECK_THAT(doctor.out, ContainsSubstring("fail  openmp         OpenMP cannot start "));
}
