// The thread that writes checkpoints.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/checkpoint/writer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train/checkpoint/run_state.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

TEST_CASE("the writer keeps the newest checkpoints and the best one, and names the last") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CheckpointWriter writer(run, {.keep = 2});
  const std::vector<double> accuracy = {.5, .9, .7, .8};
  for (size_t i = 0; i < accuracy.size(); ++i) {
    auto state = state_of(static_cast<int64_t>(10 * (i + 1)));
    state.position.accuracy.assign(accuracy.begin(), accuracy.begin() + static_cast<std::ptrdiff_t>(i + 1));
    writer.save(std::move(state), accuracy[i]);
    writer.save(state_of(static_cast<int64_t>(10 * (i + 1) + 5)), std::nullopt);  // within the next epoch
  }
  writer.finish();
  CHECK(writer.written() == 45);
  CHECK(run.steps() == std::vector<int64_t>{20, 40, 45});
  CHECK(fs::read_symlink(run.checkpoints() / "best") == "step-00000020");
  CHECK(fs::read_symlink(run.checkpoints() / "last") == "step-00000045");
}

TEST_CASE("the best checkpoint is the best of those written, whatever other epochs reached") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CheckpointWriter writer(run, {.keep = 2});
  const auto save = [&](int64_t step, std::vector<double> accuracy) {
    auto state = state_of(step);
    state.position.accuracy = std::move(accuracy);
    const double newest = state.position.accuracy.back();
    writer.save(std::move(state), newest);
    writer.finish();
    return fs::read_symlink(run.checkpoints() / "best").native();
  };
  CHECK(save(10, {.5, .4}) == "step-00000010");
  CHECK(save(20, {.5, .4, .9, .8}) == "step-00000020");  // .9 has no checkpoint
  CHECK(save(30, {.5, .4, .9, .8, .7}) == "step-00000020");
  CHECK(run.best_score() == .8);
}

TEST_CASE("a checkpoint that cannot be written is an error of the next call, once") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CheckpointWriter writer(run, {.keep = 2});
  fs::remove_all(run.checkpoints());
  writer.save(state_of(1), std::nullopt);
  CHECK_THROWS_AS(writer.finish(), OutputError);
  writer.finish();
  fs::create_directory(run.checkpoints());
  writer.save(state_of(2), std::nullopt);
  writer.finish();
  CHECK(run.steps() == std::vector<int64_t>{2});
}

TEST_CASE("with --on-save-error continue a checkpoint that cannot be written is no error") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  std::vector<CheckpointCost> costs;
  CheckpointWriter writer(run, {.keep = 2,
                                .on_error = OnSaveError::kContinue,
                                .written = [&](const auto& cost) { costs.push_back(cost); }});
  fs::remove_all(run.checkpoints());
  writer.save(state_of(1), std::nullopt);
  writer.finish();
  CHECK(costs.empty());
  fs::create_directory(run.checkpoints());
  writer.save(state_of(2), std::nullopt);
  writer.finish();
  CHECK(run.steps() == std::vector<int64_t>{2});
  REQUIRE(costs.size() == 1);
  CHECK(costs[0].step == 2);
  CHECK(costs[0].tensor_bytes ==
        3 * 4 + 3 * 4 + 4 + 3 * 2 * 8);  // w, its momentum, step, three replicas' bn.mean
  CHECK(costs[0].wrote > 0);
}

TEST_CASE(
    "what must be on the disk before a checkpoint is written first; if it cannot, there is no checkpoint") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  std::vector<size_t> checkpoints_before;
  CheckpointWriter writer(run, {.keep = 2, .before = [&] {
                                  checkpoints_before.push_back(run.steps().size());
                                  if (checkpoints_before.size() == 2) throw OutputError("disk full");
                                }});
  writer.save(state_of(1), std::nullopt);
  writer.finish();
  writer.save(state_of(2), std::nullopt);
  CHECK_THROWS_WITH(writer.finish(), "disk full");
  CHECK(checkpoints_before == std::vector<size_t>{0, 1});
  CHECK(run.steps() == std::vector<int64_t>{1});
}
