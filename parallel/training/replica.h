// One replica of a training run: a full copy of the model on one device, with its gradient synchronisation,
// its optimizer and its rows. To follow a gradient, read step_eagerly(): gather, forward, backward, wait,
// update.
#pragma once

#include <c10/core/Event.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/parallel/batch_norm_sync.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/optimizer/optimizer.h>
#include <lockstep/parallel/optimizer/weight_average.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/timing/phase_span.h>
#include <lockstep/parallel/timing/step_times.h>
#include <lockstep/parallel/training/graphs/captured_steps.h>
#include <lockstep/parallel/training/held_parameters.h>
#include <lockstep/parallel/training/loss_scale.h>
#include <lockstep/parallel/training/replica_options.h>
#include <lockstep/parallel/training/training_modes.h>
#include <lockstep/support/train_state.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct StateNumbers;

// A replica's part of one step.
struct ReplicaStep {
  // Row numbers, one list per micro-batch. Only a replica that is invariant, or that exchanges statistics,
  // may have empty lists; the latter has as many lists as all others.
  std::vector<std::span<const int64_t>> micro_batches;
  int64_t batch_rows = 0;  // of the global batch
  double lr = 0;
  int64_t epoch = 0;   // as BatchSource::gather() takes it
  int64_t number = 0;  // of the step, from 0
  uint64_t seed = 0;   // of the numbers that the step draws
};

// Not thread-safe. Construct and call it in the replica's thread.
class Replica {
 public:
  // A collective. Moves the module to the endpoint's device and gives it rank 0's weights; from then on its
  // parameters lie in memory of the replica. Throws as GradientSync::attach() and
  // require_memory_of_their_own() do. statistics: for batch normalisations of the whole batch
  // (BatchNormSync); null: each replica normalises its own rows.
  Replica(const Model& model, Endpoint& endpoint, std::shared_ptr<const BatchSource> source,
          const ReplicaOptions& options, Endpoint* statistics = nullptr);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // A collective: one step of training. On a GPU it queues the work and returns while fewer than in_flight
  // steps are unfinished. It replays captured steps (see CapturedSteps::replay for the error). Throws faults
  // of the model and the data as model_errors.h says, and as require_held_parameters() does.
  StepTimestamps step(const ReplicaStep& step);

  // (sum_count + 1) double on the device, since the last reset: the sums of the outcomes (outcome_sums.h),
  // and the number of the first step whose loss was NaN or infinite, or infinity.
  const torch::Tensor& sums() const { return sums_; }
  void reset_sums();

  int64_t rows_trained() const { return rows_trained_; }

  // Null but for Precision::kFp16. It changes in steps alone.
  LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }

  // Throws UsageError when a parameter has got other memory, or a buffer where steps are captured.
  void require_held_parameters() const { held_.require_unchanged(endpoint_.rank()); }

  // Returns true if requires_grad of a parameter has changed. Thread-safe while no follow_requires_grad() is
  // running.
  bool requires_grad_changed() const { return held_.requires_grad_changed(); }

  // A collective. Call it when that is so on any replica, and no work is queued on the device: from now on
  // what requires a gradient is trained. The optimizer keeps its state of what stays trained, and has none of
  // what is new. Throws UsageError on all ranks when requires_grad differs between them.
  void follow_requires_grad();

  Optimizer& optimizer() { return *optimizer_; }

  // The averages of the trained parameters by name, in its memory; none without ReplicaOptions::ema, before
  // the first update, and where ranks own parts of them.
  std::vector<NamedTensor> average() const;

  // Host copies of all averages; none without ReplicaOptions::ema, and before the first update. A collective
  // if ranks own parts. memory: for the copies; null: none.
  std::vector<NamedTensor> average_copies(const TensorAllocator* memory) const;

  // Returns what such a state has, with other values; none without ReplicaOptions::ema.
  std::vector<NamedTensor> expected_average() const {
    return average_ ? average_->expected() : std::vector<NamedTensor>();
  }

  // Puts them in the place of the parameters until the object is destroyed, which the next step must not
  // begin before. Null: the parameters stay, since there are none. A collective if ranks own parts.
  std::unique_ptr<AveragesInPlace> put_average_in_place();

  // Returns what this replica has for itself, on the host.
  ReplicaState own_state() const;

  // A collective: rank 0 has written the weights, and has the state, whose parts fit Optimizer::expected()
  // and expected_average(); all other ranks get them. `own` is this replica's, `numbers` are the state's.
  // Forgets the sums. Torch's generators are left to the caller: replicas share them.
  void take_state(const ReplicaState& own, const TrainState& state, const StateNumbers& numbers);

 private:
  void hold_parameters();
  void keep_bf16_weights();
  TrainedParameters trained_parameters();
  CaptureOptions capture_options(bool exchanges_statistics) const;
  StepParts captured_parts();
  PhaseSpan span(const char* phase);
  std::string place() const;

  void prepare(const ReplicaStep& step, StepShape& shape);
  StepTimestamps compute(StepShape& shape);
  StepTimestamps step_eagerly(StepShape& shape);
  void gather(StepShape& shape);
  void gather_in_place(StepShape& shape);
  void forward_backward(StepShape& shape);
  void weigh(StepShape& shape);
  void forward_backward(StepShape& shape, size_t micro_batch);
  void sync_gradients(const StepShape& shape);
  void update();
  void update_parameters();
  torch::Tensor clip_factor();
  void fetch(size_t bucket);
  void fetch_all();
  void finish_fetches();
  void add_to_sums(const Outcome& outcome, const torch::Tensor& weight);
  void wait_for_device() const;
  void bound_queue();
  // Returns true if rows are gathered in a captured step, which no collective can interrupt.
  bool captures_gather() const {
    return source_->can_be_captured() && (!model_.weight || endpoint_.world_size() == 1);
  }
  // Returns true if nothing happens to the gradients between backward and update.
  bool alone() const { return endpoint_.world_size() == 1 && !options_.sync.hook; }
  // Returns true if autograd hands the gradients of this step over: on a GPU, where nothing is added to them.
  // The kernel that takes them writes float and double.
  bool hands_gradients_over(const StepShape& shape) const {
    return !endpoint_.device().is_cpu() && params_.flat.element_size() >= 4 && shape.inputs.size() == 1 &&
           !micro_shards_ && !shares_updates();
  }
  // Returns true if each rank updates a part of the parameters, and gives it to the others.
  bool shares_updates() const { return options_.sync.shard != Shard::kNone && endpoint_.world_size() > 1; }
  // Returns true if it does so when all of its part is updated: no collective can be captured.
  bool fetches_later() const { return shares_updates() && captured_.enabled(); }

  const ReplicaOptions options_;
  const Model model_;
  Endpoint& endpoint_;
  const std::shared_ptr<const BatchSource> source_;
  const std::shared_ptr<const BatchSpec> batches_;  // what it gives
  GradientSync sync_;
  std::optional<BatchNormSync> norm_sync_;
  FlatTensors params_;                      // all that are trained
  std::shared_ptr<const FlatOrder> order_;  // of these
  std::vector<torch::Tensor> gradients_;    // of these, this rank's part of each bucket
  std::vector<Work> fetches_;               // of the buckets that other ranks update, in this step
  HeldParameters held_;                     // all, and where steps are captured the buffers
  TrainingModes modes_;                     // with which steps were captured
  FlatTensors bf16_weights_;                // the same in bfloat16, where the model computes with those
  std::optional<MicroShardSum> micro_shards_;
  std::vector<at::Generator> generators_;  // of each micro-shard of this step
  const std::unique_ptr<Optimizer> optimizer_;
  std::optional<WeightAverage> average_;  // with options.ema
  std::optional<LossScale> loss_scale_;   // in fp16
  torch::Tensor sums_;
  // () double on the device: infinity. A tensor, so that the host does not copy it in every step.
  torch::Tensor never_;
  torch::Tensor number_;     // () double on the device: number of this step
  int64_t next_number_ = 0;  // number_ will hold this when the queued work is done
  int64_t rows_trained_ = 0;
  std::string_view phase_ = "gather";  // of this step
  std::optional<DeviceClock> clock_;   // on a GPU with a trace
  CapturedSteps captured_;
  std::deque<c10::Event> queued_;  // on a GPU: the ends of the steps that may still be in flight there
};

}  // namespace lockstep
