// The text of the live display at given times. All figures are counted by hand.
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/app/train/progress/live_run.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/app/run_files/classified.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/redirect.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using lockstep::testing::Redirect;
using lockstep::testing::TempFolder;

namespace {

// 4 epochs of 20 steps, or as far as 70 steps.
TrainPlan plan_of_70_steps() {
  TrainPlan plan;
  plan.epochs = 4;
  plan.steps_per_epoch = 20;
  plan.total_steps = 70;
  plan.data.set.row_noun = "image";
  return plan;
}

StepInterval interval_of(double begin, int64_t steps) {
  // A resumed epoch also has sums of steps before the break.
  const auto sums = testing::classified(16 * static_cast<double>(steps), 64 * steps, 48 * steps);
  return {.begin = begin, .steps = steps, .rows = 32 * steps, .sums = sums};
}

}  // namespace

TEST_CASE("the live display says how far a run is, how fast, and how long it takes") {
  const TempFolder folder;
  const auto file = (folder / "err").string();
  const auto plan = plan_of_70_steps();
  double now = 100;
  const Redirect errors(STDERR_FILENO, file);  // of 80 columns and 24 rows
  LiveRun live(plan, Terminal(STDERR_FILENO, ColorMode::kNever), ::getpgrp(), [&] { return now; });
  size_t seen = 0;
  // The lines drawn since the last call; empty if nothing was.
  const auto drawn = [&] {
    auto text = testing::read_file(file).substr(seen);
    seen += text.size();
    for (const std::string control : {"\r\x1b[J", "\x1b[J", "\x1b[K", "\r"}) {
      for (size_t at; (at = text.find(control)) != std::string::npos;) text.erase(at, control.size());
    }
    return text;
  };
  const auto ends_with = [](const std::string& text, const std::string& end) {
    INFO(text);
    CHECK(text.ends_with(end));
  };

  live.begin(1, 0, {});
  ends_with(drawn(), "   0%");
  // 10 steps in 5 s; 60 more take 30 s; nothing is known of evaluations.
  now = 105;
  live.steps(interval_of(100, 10), 10);
  ends_with(drawn(), "  14% | 0:30 left | 64 img/s | loss 0.2500 | top1 75.0%");
  CHECK_FALSE(live.due());
  now = 105.125;
  live.steps(interval_of(100, 11), 11);
  CHECK(drawn().empty());
  now = 105.25;
  CHECK(live.due());
  // 20 steps in 10 s; 50 more take 25 s. An evaluation of 4 s is half done: 2 s, and three to come.
  now = 110;
  live.trained(interval_of(100, 20), 20);
  now = 112;
  live.evaluation(5, 10);
  ends_with(drawn(), "  28% | 0:39 left | evaluating 50% | loss 0.2500 | top1 75.0%");
  // It has taken 6 s. Of the second epoch 10 steps take 20 s: a step takes 1 s in the mean. 40 s and 3 x 6 s.
  live.evaluated(6);
  const std::vector<double> accuracy = {.5};
  live.begin(2, 20, accuracy);
  ends_with(drawn(), "  28% | 0:43 left | 64 img/s | loss 0.2500 | top1 75.0%");
  now = 132;
  live.steps(interval_of(112, 10), 30);
  ends_with(drawn(), "  42% | 0:58 left | 16 img/s | loss 0.2500 | top1 75.0%");
}
