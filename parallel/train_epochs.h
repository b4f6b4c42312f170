// The loop of a training over epochs, with callbacks that can stop it:
//
//   train_epochs(trainer, {.epochs = 20,
//                          .batch_size = 256,
//                          .order = [](int64_t epoch) { return batch_order(/*seed=*/0, epoch, 4096); },
//                          .after_epoch = [&](EpochRun& run) {
//                            if (trainer.evaluate()["mae"] < .01) run.stop();
//                          }});
//
// A loop of your own around Trainer::step() trains the same. This one also goes on within an epoch, after
// Trainer::load(); tells sources which rows come next; and lets any process stop all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <lockstep/parallel/trainer.h>

namespace lockstep {

// Where the training is, for its callbacks.
class EpochRun {
 public:
  EpochRun(int64_t epoch, int64_t steps) : epoch_(epoch), steps_(steps) {}

  int64_t epoch() const { return epoch_; }  // from 0
  int64_t step() const { return step_; }    // steps of the epoch that are done
  int64_t steps() const { return steps_; }  // of the whole epoch

  // Ends train_epochs(): all processes leave it after the same step, whichever has called it. Called after a
  // step by one of several processes, that is the next step: by then all know of it, and none has waited.
  void stop() { stops_ = true; }

 private:
  friend class EpochLoop;

  int64_t epoch_;
  int64_t step_ = 0;
  int64_t steps_;
  bool stops_ = false;
};

struct EpochOptions {
  int64_t epochs = 1;  // of the whole training, with those that were trained before
  int64_t batch_size = 0;
  // The numbers of an epoch's rows, such as batch_order(): as many in each, the same in every process, and
  // for an epoch the same in every call.
  std::function<std::vector<int64_t>(int64_t epoch)> order = {};
  // Called in every process after each step and each whole epoch, in the thread that calls train_epochs().
  // They may call the trainer: evaluate(), state() and other calls that all processes make, in all of them.
  // Where one process alone calls it, all get an error: UsageError at the end of an epoch, PeerError in it
  // (over NCCL, which does not compare collectives, it may come with the timeout).
  // After load() and leave_out_step() the loop goes on from steps_taken(), also in another epoch; in a later
  // one after this epoch's after_epoch. A training that goes on behind the last step of an epoch does not
  // call after_epoch for that one: save there, after observe_loss(), what is to go on there.
  // Trainer::step() has returned; take_sums() waits for the step. After an exception of theirs the others get
  // a PeerError: in an epoch when this process's trainer ends, at its end at once. May be empty.
  std::function<void(EpochRun&)> after_step = {};
  std::function<void(EpochRun&)> after_epoch = {};
};

// The rows of a step of an epoch, from 0. The last batch may be smaller. Throws UsageError for a step that
// the epoch does not have.
std::span<const int64_t> batch_of(std::span<const int64_t> order, int64_t step, int64_t batch_size);

// Trains up to the end of options.epochs, from trainer.steps_taken() on: a trainer that has loaded a state
// goes on in the middle of its epoch, if batch size and rows are the same. Every process calls it. Returns
// false if it was stopped before the end; another call goes on. Throws UsageError in every process for a
// negative number of epochs, a batch size below 1, no order, epochs of different sizes, and where processes
// have other options or another order of an epoch's rows; at the end what Trainer::require_updates() throws;
// what Trainer::step() and the callbacks throw.
bool train_epochs(Trainer& trainer, const EpochOptions& options);

}  // namespace lockstep
