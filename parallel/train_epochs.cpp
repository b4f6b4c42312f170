#include <lockstep/parallel/train_epochs.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/collectives/step_votes.h>
#include <lockstep/support/error.h>

namespace lockstep {

class EpochLoop {
 public:
  EpochLoop(Trainer& trainer, const EpochOptions& options)
      : trainer_(trainer),
        options_(options),
        rows_(validated(options)),
        steps_((rows_ + options.batch_size - 1) / options.batch_size),
        votes_(trainer.options().process_group.get(), /*questions=*/1) {}

  bool run() {
    const auto all = options_.epochs * steps_;
    while (trainer_.steps_taken() < all && run_epoch(trainer_.steps_taken() / steps_)) {
    }
    if (trainer_.steps_taken() < all) return false;
    trainer_.require_updates();
    return true;
  }

 private:
  // Returns the rows of an epoch.
  static int64_t validated(const EpochOptions& options) {
    if (options.batch_size < 1) {
      throw UsageError(fmt::format("a batch of {} rows", options.batch_size),
                       "batch_size is the number of rows of a step, over all replicas");
    }
    if (!options.order) {
      throw UsageError(
          "the epochs have no order",
          "give a function that returns the rows of an epoch, such as batch_order(seed, epoch, rows)");
    }
    const auto rows = static_cast<int64_t>(options.order(0).size());
    if (rows == 0) throw UsageError("an epoch of 0 rows", "order returns the numbers of an epoch's rows");
    return rows;
  }

  std::vector<int64_t> order_of(int64_t epoch) const {
    auto order = options_.order(epoch);
    if (static_cast<int64_t>(order.size()) == rows_) return order;
    throw UsageError(fmt::format("epoch {} has {} rows, the first one {}", epoch + 1, order.size(), rows_),
                     "all epochs have as many rows, so that a number of steps says where a training is");
  }

  // Returns false if it was stopped.
  bool run_epoch(int64_t epoch) {
    const auto order = order_of(epoch);
    EpochRun run(epoch, steps_);
    run.step_ = trainer_.steps_taken() - epoch * steps_;
    while (run.step_ < steps_) {
      if (run.step_ + 1 < steps_) {
        trainer_.will_need(batch_of(order, run.step_ + 1, options_.batch_size), epoch);
      }
      trainer_.step(batch_of(order, run.step_, options_.batch_size), epoch);
      ++run.step_;
      if (options_.after_step) options_.after_step(run);
      const bool last = run.step_ == steps_;
      const auto stops = last ? votes_.agree_now(run.stops_) : votes_.after_step(run.stops_);
      if (stops == 0) continue;
      run.stops_ = true;
      if (last) break;
      votes_.agree_now(0);  // nothing is on its way when the processes part
      return false;
    }
    if (options_.after_epoch) options_.after_epoch(run);
    return votes_.agree_now(run.stops_) == 0;
  }

  Trainer& trainer_;
  const EpochOptions& options_;
  const int64_t rows_;   // of an epoch
  const int64_t steps_;  // the same
  StepVotes votes_;      // to stop
};

std::span<const int64_t> batch_of(std::span<const int64_t> order, int64_t step, int64_t batch_size) {
  const auto first = static_cast<size_t>(step * batch_size);
  return order.subspan(first, std::min(static_cast<size_t>(batch_size), order.size() - first));
}

bool train_epochs(Trainer& trainer, const EpochOptions& options) { return EpochLoop(trainer, options).run(); }

}  // namespace lockstep
