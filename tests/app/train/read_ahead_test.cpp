// A run tells the source of its training rows what comes next.
#include <lockstep/tests/catch.h>

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include <lockstep/app/train/run.h>

using namespace lockstep;

namespace {

using Told = std::set<std::pair<int64_t, int64_t>>;  // epoch and row

// Checks that each batch was told, and before it the next one of its epoch.
class CheckedSource : public BatchSource {
 public:
  CheckedSource(std::shared_ptr<const BatchSource> rows, std::shared_ptr<int64_t> told_rows)
      : rows_(std::move(rows)), told_rows_(std::move(told_rows)) {}

  int64_t size() const override { return rows_->size(); }
  BatchSpec spec() const override { return rows_->spec(); }

  void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
    for (const auto row : rows) told_.emplace(epoch, row);
    *told_rows_ += static_cast<int64_t>(rows.size());
  }

  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    for (int64_t i = 0; i < rows.numel(); ++i) {
      const std::pair row(epoch, rows[i].item<int64_t>());
      CHECK(told_.erase(row) == 1);
    }
    taken_ += rows.numel();
    const bool last = taken_ % size() == 0;
    CHECK(std::ssize(told_) == (last ? 0 : rows.numel()));
    rows_->gather(rows, epoch, into);
  }

 private:
  const std::shared_ptr<const BatchSource> rows_;
  const std::shared_ptr<int64_t> told_rows_;
  mutable Told told_;  // and not yet taken
  mutable int64_t taken_ = 0;
};

}  // namespace

TEST_CASE("a run tells its source of each batch, one batch ahead") {
  TrainFlags flags;
  flags.data.path = "synthetic";
  flags.data.limit_train = 64;
  flags.data.limit_test = 8;
  flags.batch_size = 16;
  flags.epochs = 2;
  flags.trainer.threads = 1;
  flags.devices = "cpu";
  auto plan = make_train_plan(flags);
  const auto told_rows = std::make_shared<int64_t>(0);
  plan.data.set.train.sources = [told_rows, sources = plan.data.set.train.sources](torch::Device device) {
    return std::make_shared<CheckedSource>(sources(device), told_rows);
  };
  run_silently(plan, flags);
  CHECK(*told_rows == 128);
}
