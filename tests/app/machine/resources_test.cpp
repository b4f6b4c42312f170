// The needs of a run: threads and memory.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <iterator>

#include <lockstep/support/cpu/capability.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a run has the main thread and the threads of its replicas, and no others") {
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

TEST_CASE("train and bench step refuse a run that cannot fit into memory") {
  if (available_bytes() > int64_t{500'000'000'000}) SKIP_CASE("this machine has 600 GB of memory");
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

TEST_CASE("more threads than cores, or a rate far above the recipe's, give a warning") {
  const auto warnings = [](const Words& words) {
    const auto result = run_process(train(words + Words{"--dry-run"}));
    CHECK(result.exit_code == 0);
    return result.err;
  };
  CHECK_THAT(warnings({"--threads", "1000"}), ContainsSubstring("warning: --threads 1000 is more than the "));
  CHECK(warnings({"--lr", "5.9"}).empty());  // below 30 x .2
  CHECK_THAT(warnings({"--lr", "6.2"}),
             ContainsSubstring(
                 "warning: a learning rate of 6.2 is 31 times the 0.2 that lenet-scratch uses with sgd"));
  CHECK(warnings({"--optimizer", "adamw"}).empty());
  CHECK_THAT(warnings({"--optimizer", "adamw", "--lr", ".2"}),
             ContainsSubstring("0.2 is 200 times the 0.001 that lenet-scratch uses with adamw"));
}

TEST_CASE("fp16 on a CPU gives a warning, unless the model computes in fp32 there") {
  const auto warnings = [](const Words& words) {
    const auto result =
        run_process(train(words + Words{"--precision", "fp16", "--devices", "cpu", "--dry-run"}));
    CHECK(result.exit_code == 0);
    return result.err;
  };
  CHECK(warnings({}).empty());
  CHECK_THAT(warnings({"--kernels", "torch"}), ContainsSubstring("warning: --precision fp16 on a CPU: "));
}

TEST_CASE("bf16 on a CPU without AVX-512 gives a warning, unless the model computes in fp32 there") {
  const auto warns = [](const Words& words) {
    const auto result =
        run_process(train(words + Words{"--precision", "bf16", "--devices", "cpu", "--dry-run"}));
    CHECK(result.exit_code == 0);
    return result.err.find("warning: --precision bf16 on a CPU without AVX-512") != std::string::npos;
  };
  const bool slow = !has_capability(CpuCapability::kAvx512);
  CHECK_FALSE(warns({}));
  CHECK(warns({"--kernels", "torch"}) == slow);
  CHECK(warns({"--recipe", "resnet18-pytorch"}) == slow);
}

#ifndef __SANITIZE_ADDRESS__  // it has stacks of its own, and frees memory late
TEST_CASE("if the system starts no other thread, the error says so, with exit code 8") {
  // A thread's stack is then larger than the address space: no thread can start.
  for (const Words& words : {Words{"train", "--data", "synthetic", "--limit-train", "64"},
                             Words{"bench", "allreduce", "--devices", "cpux2"}}) {
    Process process;
    process.command =
        Words{"/bin/sh", "-c", "ulimit -s 68719476736 && exec \"$@\"", "sh", LOCKSTEP_PROGRAM} + words;
    const auto result = run_process(process);
    INFO(words[0] << ": " << result.err);
    if (result.err.find("imit") != std::string::npos && result.err.find("lockstep:") == std::string::npos) {
      SKIP_CASE("this shell cannot raise the limit of its stack");
    }
    CHECK(result.exit_code == 8);
    CHECK_THAT(result.err, ContainsSubstring("more threads are needed, the system starts only 0") ||
                               ContainsSubstring("the system cannot start another thread"));
    CHECK_THAT(result.err, ContainsSubstring("\nhint: use fewer replicas"));
  }
}

TEST_CASE("a run's memory does not grow between step 20 and step 200") {
  const std::string devices = GENERATE("cpu", "cpux2");
  const auto events = metrics_of({"--limit-train", "12800", "--batch-size", "64", "--epochs", "1",
                                  "--log-every", "20", "--devices", devices});
  std::vector<double> resident;
  for (const auto& step : events_named("step", events)) resident.push_back(step.at("resident_bytes"));
  REQUIRE(resident.size() == 10);
  INFO(resident.front() << " and " << resident.back() << " bytes");
  // malloc's heaps grow by some megabytes at first. The images of all steps would be 36 MB.
  CHECK(resident.back() - resident.front() <= 10e6);
}
#endif
