#include <lockstep/parallel/train_epochs.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/step_votes.h>
#include <lockstep/parallel/replicas/batch_rows.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/support/batches.h>
#include <lockstep/support/error.h>

namespace lockstep {

class EpochLoop {
 public:
  EpochLoop(Trainer& trainer, const EpochOptions& options)
      : trainer_(trainer),
        options_(options),
        rows_(agreed_rows()),
        steps_(batches_of(rows_, options.batch_size)),
        votes_(group(), /*questions=*/1) {}

  bool run() {
    while (next_epoch() < options_.epochs && run_epoch(next_epoch())) {
    }
    if (next_epoch() < options_.epochs) return false;
    trainer_.require_updates();
    return true;
  }

 private:
  ProcessGroup* group() const { return trainer_.options().process_group.get(); }

  int64_t next_epoch() const { return trainer_.steps_taken() / steps_; }  // the one of the next step

  // Returns the rows of an epoch. The processes tell their options before one of them may refuse its own.
  int64_t agreed_rows() const {
    const auto rows = options_.order ? static_cast<int64_t>(options_.order(0).size()) : 0;
    agree(group(), "epochs",
          {fmt::format("{} epochs", options_.epochs), fmt::format("batches of {} rows", options_.batch_size),
           options_.order ? fmt::format("{} rows in an epoch", rows) : "no order"},
          "give train_epochs() the same ones in all processes");
    if (options_.epochs < 0) {
      throw UsageError(fmt::format("a training of {} epochs", options_.epochs),
                       "epochs are those of the whole training, with those that were trained before");
    }
    if (options_.batch_size < 1) {
      throw UsageError(fmt::format("a batch of {} rows", options_.batch_size),
                       "batch_size is the number of rows of a step, over all replicas");
    }
    if (!options_.order) {
      throw UsageError(
          "the epochs have no order",
          "give a function that returns the rows of an epoch, such as batch_order(seed, epoch, rows)");
    }
    if (rows == 0) throw UsageError("an epoch of 0 rows", "order returns the numbers of an epoch's rows");
    return rows;
  }

  std::vector<int64_t> agreed_order(int64_t epoch) const {
    auto order = options_.order(epoch);
    agree(group(), "orders of an epoch",
          {fmt::format("epoch {} after {} steps", epoch + 1, trainer_.steps_taken()),
           fmt::format("{} rows with the digest {:016x}", order.size(), batch_digest(order))},
          "order returns the same rows in every process, as batch_order() does with one seed");
    if (static_cast<int64_t>(order.size()) == rows_) return order;
    throw UsageError(fmt::format("epoch {} has {} rows, the first one {}", epoch + 1, order.size(), rows_),
                     "all epochs have as many rows, so that a number of steps says where a training is");
  }

  // Returns false if it was stopped.
  bool run_epoch(int64_t epoch) {
    const auto order = agreed_order(epoch);
    EpochRun run(epoch, steps_);
    run.step_ = trainer_.steps_taken() - epoch * steps_;
    const auto tell = [&](int64_t step) {
      if (step < steps_) trainer_.will_need(batch_of(order, step, options_.batch_size), epoch);
    };
    tell(run.step_);
    while (run.step_ < steps_) {
      tell(run.step_ + 1);
      trainer_.step(batch_of(order, run.step_, options_.batch_size), epoch);
      ++run.step_;
      if (options_.after_step) call(options_.after_step, run);
      // The callback may have loaded a state or left out steps.
      run.step_ = std::min(trainer_.steps_taken() - epoch * steps_, steps_);
      const bool goes_back = run.step_ < 0, last = run.step_ == steps_;
      const auto stops = goes_back || last ? agreed_now(run) : votes_.after_step(run.stops_);
      if (goes_back) return stops == 0;
      if (stops == 0) continue;
      run.stops_ = true;
      if (last) break;
      votes_.agree_now(0);  // nothing is on its way when the processes part
      return false;
    }
    if (options_.after_epoch) call(options_.after_epoch, run);
    return agreed_now(run) == 0;
  }

  // An exception within an epoch ends the other processes' next step. At its end they compare their calls,
  // and have not done so if this callback has made the same ones.
  void call(const std::function<void(EpochRun&)>& callback, EpochRun& run) try {
    callback(run);
  } catch (const std::exception&) {
    if (run.step_ == steps_ && !trainer_.calls_differ_) {
      try {
        trainer_.require_same_history(CommonCall::kLeaveEpoch);
      } catch (const std::exception&) {  // the others' error; this one's says more
      }
    }
    throw;
  }

  // Votes travel on a way of their own: a process whose callback calls the trainer alone would wait there,
  // and the others for its vote. So they meet where the trainer's calls do first.
  uint64_t agreed_now(const EpochRun& run) {
    trainer_.require_same_history(CommonCall::kEndEpoch);
    return votes_.agree_now(run.stops_);
  }

  Trainer& trainer_;
  const EpochOptions& options_;
  const int64_t rows_;   // of an epoch
  const int64_t steps_;  // of an epoch
  StepVotes votes_;      // to stop
};

std::span<const int64_t> batch_of(std::span<const int64_t> order, int64_t step, int64_t batch_size) {
  const auto rows = static_cast<int64_t>(order.size());
  if (batch_size < 1 || step < 0 || step >= batches_of(rows, batch_size)) {
    throw UsageError(fmt::format("there is no step {} of {} rows in batches of {}", step, rows, batch_size),
                     "an epoch has the steps 0 .. (rows - 1) / batch_size");
  }
  const auto first = step * batch_size;
  return order.subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(batch_size, rows - first)));
}

bool train_epochs(Trainer& trainer, const EpochOptions& options) { return EpochLoop(trainer, options).run(); }

}  // namespace lockstep
