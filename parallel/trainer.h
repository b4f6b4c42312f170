// Trains a model on several replicas, one step at a time. `lockstep train` uses it.
//
// The way of a gradient: Trainer::step splits the rows into shards, Replica::step computes on its shard,
// GradientSync posts each bucket of gradients when backward has filled it, Endpoint::allreduce_gradients sums
// them. Captured GPU steps (CUDA graphs) run no autograd hooks: all buckets are posted after the replayed
// backward.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/timing/step_times.h>
#include <lockstep/parallel/trainer_options.h>
#include <lockstep/parallel/training/evaluation.h>
#include <lockstep/support/tensor_allocator.h>
#include <lockstep/support/train_state.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Replica;
struct ReplicaStep;
class SplitTuner;
class StepHistory;
enum class CommonCall;

// Sums over the rows that all processes have trained on since the last take_sums().
struct TrainSums : RowSums {
  // The first step whose loss was NaN or infinite, from 0, and the lowest rank it happened on.
  struct Bad {
    int64_t step = 0;
    int rank = 0;
  };
  std::optional<Bad> bad;
  int64_t skipped = 0;  // steps without an update, since a gradient was not finite (Precision::kFp16)
};

// Holds one replica per device of this process, each with its own worker thread, and the data once per
// distinct device. Not thread-safe. Call leave_cores_to_replicas() (main_thread.h) first. An error in one
// replica ends the step on all replicas and is thrown once. Afterwards the trainer can only be destroyed.
//
// Any number of replicas takes the same steps, to rounding, if the model's loss is a sum over the rows and
// none looks at the others: check_split() (check_split.h) tells.
//
// Errors of the model and the data begin with the replica and the step: "rank 1 (cuda:1): in the forward pass
// of step 3: ...", or with the rows of an evaluation. UsageError for an Outcome that does not have what
// types.h says, or rows that are not as the source's spec; DataError for rows that do not fit the model
// (losses.h); FailedError for another exception of theirs, which is nested in it
// (std::rethrow_if_nested). Errors of lockstep that a model throws, out of memory and faults of a GPU are
// thrown as they are.
//
// With options.process_group the replicas of all processes train together. Every process makes the same calls
// in the same order, except take_times, synchronize, model and const functions; step gets the same rows
// everywhere. Ranks and world_size() count the replicas of all processes; `local` counts this process's, from
// 0.
class Trainer {
 public:
  // Calls factory once per replica of this process, on the host, as build_replicas() does: torch's default
  // generator afterwards is as after one call. All replicas start from rank 0's weights. A module in eval
  // mode is set to training; parts that the factory has set to eval() alone stay so, such as frozen batch
  // norms. Throws UsageError as TrainerOptions::validate() does, when two replicas have a tensor in common,
  // when the training and a test set give other tensors, for two test sets of one name, and in every process
  // when the models or the batches of two processes differ; what make_communicator() throws; with
  // BnPolicy::kSync also as has_whole_batch_norms().
  Trainer(const ModelFactory& factory, const SourceFactory& train, const TestSets& test,
          TrainerOptions options);

  ~Trainer();  // waits for the steps in flight, and for the devices

  // Trains one step on these rows of the training set, split over the replicas of the world. The update is
  // the same as for all rows on one device. Every process gives the same rows, epoch and rate, which
  // take_sums, evaluate, predict, state and check_sync compare: each throws UsageError in every process where
  // they differ, or where another process makes another of these calls.
  // Returns while up to steps_in_flight() - 1 steps are in flight; take_times, take_sums, evaluate, weights
  // and synchronize wait for them. Throws UsageError when there are no rows and for a negative epoch,
  // DataError for a row that does not exist, what lr() throws, the error that ended this or an earlier step,
  // what check_sync() throws where options.check_sync asks for it, and with Precision::kFp16 NumericError in
  // every process when it has skipped steps until the loss scale was below 2^-16, where none helps: the
  // trainer can still be used, as by load(). epoch: for sources whose rows differ between epochs, from 0.
  void step(std::span<const int64_t> rows, int64_t epoch = 0);

  // Tells each replica's source which rows a later step() of this batch asks it for
  // (BatchSource::will_need()). Call it a batch or more ahead. With auto_split other replicas may take them
  // in the end. Throws DataError for a row that does not exist.
  void will_need(std::span<const int64_t> rows, int64_t epoch = 0) const;

  // Counts a step that changes nothing: the learning rate of the next one is as after a step.
  void leave_out_step() { ++steps_taken_; }

  // The learning rate from the next step on, whatever options.lr says; empty: that of options.lr again. Every
  // process sets the same one. A part of state(). Throws UsageError if is_rate() is false for it.
  void set_lr(std::optional<double> lr);

  // The factor on the loss of the next step, and the updates and steps so far, without those that were left
  // out and those before a state without a scale was loaded; empty but for Precision::kFp16.
  // Every process gets the same. A part of state(). With kFp16 it waits for the steps in flight.
  std::optional<LossScaleState> loss_scale();

  // Call it at the end of a training, as train_epochs() does. Throws NumericError in every process if nothing
  // was trained, since with Precision::kFp16 every step() was skipped: with a few steps the loss scale may
  // not have fallen far enough. step() ends longer trainings that skip them all. leave_out_step() does not
  // count. Waits for the steps in flight.
  void require_updates();

  // The learning rate of the next step, as lr_at() gives it. Throws as options.lr.function does.
  double lr() const { return lr_at(options_.lr, steps_taken_, lr_state_); }

  // Counts a loss for Schedule::kPlateau: that of evaluate(), which is the same in every process. The next
  // step has the rate that follows. Does nothing with another schedule.
  void observe_loss(double loss) { lr_state_ = after_loss(options_.lr, lr_state_, loss); }

  // Returns how long each phase took on this process's replicas, summed over the steps since the last call.
  StepTimes take_times();

  // Returns the sums of the steps since the last call (losses and the model's metrics), over the whole world
  // and the same in every process. Waits for the devices. Throws the error that ended a collective on them.
  TrainSums take_sums();

  // Evaluates the test set on all replicas of the world, of several sets the first one, with the batch-norm
  // statistics of options.bn, and with options.ema the average of the weights. The weights are in its place
  // afterwards, bit by bit, also after an error. Every process gets the same result. Throws the error that
  // ended a collective. An exception of `progress` ends the evaluation, in other processes with PeerError;
  // the trainers can be used afterwards.
  RowSums evaluate(const EvaluationProgress& progress = {});

  // The same for the test set of this name. Throws UsageError, with the names that there are, for another; of
  // several sets also in every process where these evaluate different ones.
  RowSums evaluate(std::string_view test_set, const EvaluationProgress& progress = {});

  // Returns the model's outputs (Model::output) for rows of a data set, in their order: (rows, ...) on the
  // host, in the dtype that the model gives, without a graph, the same in every process. rows: their numbers,
  // in any order, and more than once if you like; nullopt: all. For an empty list it is (0, ...), and (0) if
  // the data set is empty. As in evaluate() the replicas of the world take blocks of rows in
  // rotation: no output depends on their number.
  //
  // The data set is loaded for each call. It has the inputs of the training set, and needs no targets. Throws
  // UsageError, in every process and before anything is computed, for a model without an output, other
  // inputs, and data sets or rows that differ between processes; DataError for a row that does not exist.
  // Afterwards the trainer can be used. Throws also UsageError for outputs that do not have one row per row,
  // or of which two blocks have other sizes; the error that ended a collective.
  torch::Tensor predict(const SourceFactory& data, std::optional<std::span<const int64_t>> rows = {});

  // Returns copies of all parameters and buffers of one replica by name, on the host and contiguous. Buffers
  // are those of options.bn. All replicas have the same parameters. Throws the error that ended a collective.
  std::vector<NamedTensor> weights(int local = 0);

  // The same with the average of the weights, as evaluate() uses it: without options.ema, and before the
  // first step, that is weights(). With options.shard all processes call it, since each has parts of it.
  std::vector<NamedTensor> averaged_weights(int local = 0);

  // Returns all that the next step depends on, except the options. Complete in the process of rank 0; in the
  // others the tensors of the model and the optimizer are left out. Sums that take_sums() has not returned
  // are not part of it. Throws the error that ended a collective, and UsageError, after which training can go
  // on, for an optimizer of a factory whose state is not known (optimizer_options.h).
  // memory: for the copies of weights, optimizer and average; with options.shard file_memory() lets the
  // process of rank 0 have them without holding all of them.
  TrainState state(const TensorAllocator& memory = heap_memory());

  // Goes on from process 0's state; the argument of other processes is ignored. With as many replicas in the
  // world as in the state, the same options and devices, the next steps give the same bits as those of the
  // saved trainer (with auto_split: once the shares are settled there; not if the model draws numbers, as
  // dropout does, on a GPU with several replicas: they share its generator). With another number all replicas
  // start with the model's batch-norm statistics. Torch's default generator becomes that which the state has
  // of this process's first replica, for what the program draws between steps. Writes in place. Sums not yet
  // taken are dropped. With options.ema the average of a state that has none, such as that of a Trainer
  // without it, begins with the next step. Throws WeightsError in every process, and changes nothing, if the
  // state is not of this model, precision and optimizer, or has an average without options.ema; also the
  // error that ended a collective.
  void load(const TrainState& state);

  // Compares the parameters of all replicas of the world, bit by bit, those on devices of one type with each
  // other, with options.ema their averages, and with Precision::kFp16 their loss scales; with
  // options.replica.invariant or BnPolicy::kSync also the batch-norm statistics. With options.shard it
  // compares no averages: each replica has a part of its own. Waits for the steps in flight. Costs a pass
  // over the weights, and on a GPU a copy of them to the host. Throws OutOfSyncError in every process if they
  // differ, and the error that ended a collective.
  void check_sync();

  // Waits for the steps in flight, and for the devices of this process. Throws the error that ended a step.
  void synchronize();
  const TrainerOptions& options() const { return options_; }
  int world_size() const { return communicator_->world_size(); }
  int local_size() const { return workers_.size(); }
  int first_rank() const { return communicator_->first_rank(); }  // of this process's replicas
  int64_t steps_taken() const { return steps_taken_; }

  // The shares in use, one per rank. With auto_split they change until split_settled().
  const std::vector<double>& split() const;
  bool split_settled() const;

  // The replica's module, on its device. Waits for the steps in flight, and throws their errors; do not use
  // the module during later ones: call model() again, or synchronize(). With bf16 weights, a change of its
  // parameters takes effect after the next step's update.
  //
  // Its parameters lie in memory of the trainer. Write to them in place: copy_() under NoGradGuard, on every
  // replica. A call that gives a parameter other memory (torch::load(), set_data(), Module::to()) makes the
  // next call of step, evaluate, weights, state, load or check_sync throw UsageError. So does another memory
  // of a buffer where steps are captured. Its gradients are the trainer's: zero between two steps, and
  // zero_grad() changes nothing.
  //
  // requires_grad_() may be called on parameters between two steps, on every replica of every process alike.
  // The next step, state() or load() follows it, with options.ema evaluate(), predict() and
  // averaged_weights(), too: a parameter that is frozen is not summed and does not move; one that is unfrozen
  // starts without momentum, and Adam and AdamW count its steps from there. A parameter that stays trained
  // keeps its state. Captured steps are captured anew. Throws UsageError on all replicas when they differ;
  // when requires_grad has changed in one process and not in another, these make different calls, and get the
  // error of that.
  //
  // train() and eval() of its parts may be called likewise, and stay: evaluate() gives each part its mode
  // back.
  const Model& model(int local);

 private:
  friend class EpochLoop;  // of train_epochs()
  struct StepInFlight;
  using MicroBatches = std::vector<std::span<const int64_t>>;       // their rows
  using Sources = std::vector<std::shared_ptr<const BatchSource>>;  // shared by replicas on one device

  void start(StepInFlight& step);
  void wait_for_steps(int in_flight);
  void require_held_parameters();
  void follow_requires_grad();
  void agree_on_metrics() const;
  void agree_on_batches() const;
  void require_predictable(const BatchSource& data, std::span<const int64_t> rows) const;
  void open_statistics();
  std::vector<MicroBatches> dealt(std::span<const int64_t> rows) const;
  std::vector<ReplicaStep> replica_steps(std::span<const int64_t> rows, int64_t epoch) const;
  void step_replica(int local, StepInFlight& step);
  void tune_split(const StepInFlight& step);
  void require_useful_scale() const;
  void require_fitting(const TrainState& state);
  void require_same_history(CommonCall call);
  torch::Tensor gather_over_ranks(const std::function<torch::Tensor(size_t local)>& own);
  void throw_if_aborted();
  void with_shared_buffers(bool averaged, const std::function<void()>& action);
  std::vector<NamedTensor> copies_of(int local, bool averaged, const TensorAllocator* memory);

  const TrainerOptions options_;
  ReplicaWorkers workers_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Communicator> norm_communicator_;  // for batch norms, with BnPolicy::kSync; else null
  std::vector<Model> models_;                        // these four: one per local replica
  Sources train_sources_;
  std::vector<std::pair<std::string, Sources>> test_sources_;  // by the sets' names
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<SplitTuner> tuner_;  // with auto_split; else null
  const int in_flight_;
  std::deque<std::unique_ptr<StepInFlight>> steps_in_flight_;  // oldest first
  StepTimes times_;                                            // since the last take_times()
  int64_t steps_taken_ = 0;
  const std::unique_ptr<StepHistory> history_;  // of the steps that this trainer has taken
  bool calls_differ_ = false;                   // by the last require_same_history()
  LrState lr_state_;
  int64_t rows_ = 0;                         // since the last take_sums()
  std::map<size_t, int64_t> steps_of_rows_;  // how many steps had so many rows
};

}  // namespace lockstep
