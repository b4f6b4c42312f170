// Training on several replicas: what `lockstep train` runs, one step at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/parallel/evaluate.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/train_batch.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct TrainerOptions {
  std::vector<torch::Device> devices;  // one replica each
  int threads = 1;                     // intra-op threads of each replica
  double lr = .2;
};

// Sums over the rows trained on since the last reading.
struct TrainSums {
  double loss = 0;
  int64_t top1 = 0;
  int64_t top5 = 0;
  int64_t rows = 0;

  TrainSums& operator+=(const TrainSums& other);
};

// Holds one copy of the parameters per device and the data once per distinct device. Used from one thread.
class Trainer {
 public:
  Trainer(const Params& initial, Network net, const SourceFactory& train, const SourceFactory& test,
          TrainerOptions options);

  // One step on these rows of the training set, split over the replicas. On GPUs it only queues the work.
  StepTimes step(std::span<const int64_t> rows);

  // What the steps since the last call have summed up. Waits for the devices.
  TrainSums take_sums();

  Evaluation evaluate();  // on the test set
  void synchronize() { workers_.synchronize(); }

  int world_size() const { return workers_.size(); }
  const Params& params(int rank) const { return device_params_[static_cast<size_t>(rank)]; }

 private:
  Network net_;
  TrainerOptions options_;
  ReplicaWorkers workers_;
  std::vector<Params> device_params_;                              // one a replica, as all that follow
  std::vector<std::shared_ptr<const BatchSource>> train_sources_;  // shared by replicas on one device
  std::vector<std::shared_ptr<const BatchSource>> test_sources_;
  std::vector<Inputs> shards_;   // reused from step to step
  std::vector<ShardSums> sums_;  // since the last take_sums()
  int64_t rows_ = 0;             // likewise
};

}  // namespace lockstep
