// Where the lines and events of a run go, and what happens if one of them cannot be written.
#include <sys/resource.h>

#include <lockstep/tests/catch.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/app/train/run_output.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const nlohmann::ordered_json kStep = {{"event", "step"}, {"epoch", 1}, {"step", 1}, {"loss", 2.5}};

// While it lives, no file of this process can grow.
class DiskFull {
 public:
  DiskFull() {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    auto none = before_;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  ~DiskFull() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_);
  }

 private:
  rlimit before_{};
  void (*old_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

}  // namespace

TEST_CASE("a quiet run's lines go to its log, and events to all files") {
  const TempFolder folder;
  RunLog log;
  log.open(folder / "train.log");
  RunMetrics metrics(folder.path(), {.per_epoch = 5, .total = 10}, FileSizes{});
  LineFile lines((folder / "all.jsonl").string(), false);
  RunOutput output(true, false, {.metrics = &lines, .run_metrics = &metrics, .log = &log});
  CHECK(output.takes_step_lines());
  CHECK_FALSE(RunOutput(true, false, {}).takes_step_lines());
  output.print("epoch 1");
  output.record(kStep);
  CHECK_FALSE(output.failed());
  CHECK_THAT(read_file(folder / "train.log"), ContainsSubstring(" epoch 1\n"));
  CHECK(read_file(folder / kMetricsJsonl) == kStep.dump() + "\n");
  CHECK(read_file(folder / "all.jsonl") == kStep.dump() + "\n");
  CHECK_THAT(read_file(folder / kMetricsCsv), ContainsSubstring("\nstep,1,1,2.5,"));
}

TEST_CASE("a log or metrics that cannot be written stop the run after its step") {
  const TempFolder folder;
  RunLog log;
  log.open(folder / "train.log");
  RunMetrics metrics(folder.path(), {.per_epoch = 5, .total = 10}, FileSizes{});
  const auto failed_after = [](const RunOutputs& to, auto act) {
    RunOutput output(true, false, to);
    {
      const DiskFull full;
      act(output);
    }
    CHECK(output.failed());
    CHECK_THROWS_WITH(output.throw_if_failed(), ContainsSubstring("File too large"));
  };
  failed_after({.log = &log}, [](RunOutput& output) { output.print("epoch 1"); });
  failed_after({.run_metrics = &metrics}, [](RunOutput& output) { output.record(kStep); });
}
