// Training on several replicas: what `lockstep train` runs, one step at a time.
//
// From here to the allreduce: Trainer::step deals the rows, Replica::step computes on its share,
// GradientSync posts each bucket of gradients when backward has filled it, Endpoint::allreduce_sum adds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/batch_norm.h>
#include <lockstep/parallel/training/evaluate.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/parallel/training/split_tuner.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct TrainerOptions {
  std::vector<torch::Device> devices;  // one replica each
  int threads = 1;                     // intra-op threads of each replica
  Allreduce allreduce = Allreduce::kAuto;
  ReplicaOptions replica;
  LrSchedule lr;
  int accumulate = 1;  // micro-batches that each shard is cut into; gradients are summed once
  // Steps that may be under way before the host waits for one. 1: step() returns when its step is done, 2:
  // when the one before it is, so that replicas go from step to step without meeting the host. Empty: 2 where
  // there is a GPU, which would else run dry between steps, 1 on processors.
  std::optional<int> in_flight;
  std::vector<double> split;  // shares of the batch, one a replica; empty: even
  bool auto_split = false;    // found by timing over the first steps
  BnPolicy bn = BnPolicy::kRoot;
};

// options.in_flight, or what it is when empty.
int steps_in_flight(const TrainerOptions& options);

// Sums over the rows trained on since the last reading.
struct TrainSums {
  double loss = 0;
  int64_t top1 = 0;
  int64_t top5 = 0;
  int64_t rows = 0;

  // The first step whose loss was NaN or infinite, from 0, and the rank it happened on.
  struct Bad {
    int64_t step = 0;
    int rank = 0;
  };
  std::optional<Bad> bad;

  TrainSums& operator+=(const TrainSums& other);
};

// Holds one replica per device, each with a worker thread of its own, and the data once per distinct device.
// Used from one thread, best one that leave_cores_to_replicas() (main_thread.h). An error in one replica ends
// the step on all and is thrown once; the trainer can then only be destroyed, which leaves no thread behind.
class Trainer {
 public:
  // factory is called once a replica, on the host; only the first call changes torch's default generator, and
  // all replicas start from the first one's weights.
  Trainer(const ModelFactory& factory, const SourceFactory& train, const SourceFactory& test,
          TrainerOptions options);

  ~Trainer();  // waits for the steps under way, and for the devices

  // One step on these rows of the training set, split over the replicas: the same update as for all of them
  // on one device. Throws UsageError when there are none, and what ended this or an earlier step. Returns
  // while up to steps_in_flight() - 1 steps are under way; whatever else is called waits for them.
  void step(std::span<const int64_t> rows);

  // Where the time of the steps since the last call went, summed over them.
  StepTimes take_times();

  // What the steps since the last call have summed up. Waits for the devices, and throws what has ended a
  // collective on them.
  TrainSums take_sums();

  // On the test set, with the batch-norm statistics of options.bn. Throws what has ended a collective, as
  // weights() does. What `progress` throws ends it, too, and the trainer stays of use.
  Evaluation evaluate(const EvaluationProgress& progress = {});

  // Copies on the host, contiguous, of all parameters and buffers of one replica by their names; buffers are
  // those of options.bn. The parameters of all replicas are the same.
  std::vector<NamedTensor> weights(int rank = 0);

  void synchronize();
  int world_size() const { return workers_.size(); }
  int64_t steps_taken() const { return steps_taken_; }
  double lr() const { return lr_at(options_.lr, steps_taken_); }  // of the next step

  // The shares in use; with auto_split they change until settled.
  const std::vector<double>& split() const { return tuner_ ? tuner_->shares() : options_.split; }
  bool split_settled() const { return !tuner_ || tuner_->settled(); }

  // For programs that look inside: the replica's module, on its device. Not while a step is under way. What
  // they write to its parameters counts in bf16 from the next step's update on.
  const Model& model(int rank) const { return models_[static_cast<size_t>(rank)]; }

 private:
  // A step that was handed to the replicas.
  struct Flight {
    std::vector<int64_t> rows;
    std::vector<ReplicaStep> steps;       // one a replica, on parts of rows
    std::vector<StepTimestamps> moments;  // likewise, written by the replicas
  };

  void land(int under_way);
  void build_models(const ModelFactory& factory);
  std::vector<ReplicaStep> deal(std::span<const int64_t> rows) const;
  void watch_split(const Flight& flight);
  void throw_if_aborted();
  void with_shared_buffers(const std::function<void()>& action);

  const TrainerOptions options_;
  ReplicaWorkers workers_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<Model> models_;                                      // one a replica, as all that follow
  std::vector<std::shared_ptr<const BatchSource>> train_sources_;  // shared by replicas on one device
  std::vector<std::shared_ptr<const BatchSource>> test_sources_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::optional<SplitTuner> tuner_;
  const int in_flight_;
  std::deque<Flight> flights_;  // under way, oldest first
  StepTimes times_;             // since the last take_times()
  int64_t steps_taken_ = 0;
  int64_t rows_ = 0;  // since the last take_sums()
};

}  // namespace lockstep
