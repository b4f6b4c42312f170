// What a run takes of the machine: threads and memory.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <iterator>

#include <lockstep/tests/app/train_process.h>

using namespace lockstep::test;

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

#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed for a while
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
