// Trainers, models and batches that the tests of Trainer share.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/classification.h>
#include <lockstep/tests/support/mishap.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

using Rows = std::vector<int64_t>;

// Full, uneven, fewer rows than replicas, a single row.
inline const std::vector<Rows> kBatches = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                           {30, 29, 7, 3, 1},
                                           {17},
                                           {2, 4, 8, 16, 31, 5, 6, 7, 20, 21, 22, 23, 24, 25, 26, 0},
                                           {9, 8, 7, 6, 5, 4, 3}};

inline TrainerOptions options_for(int world) {
  TrainerOptions options;
  options.devices = std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU);
  options.threads = 1;  // bits depend on it
  options.lr = {.lr = .2};
  return options;
}

inline Trainer make_trainer(const ModelFactory& factory, const TrainerOptions& options,
                            std::shared_ptr<RowSource> train = std::make_shared<RowSource>(32)) {
  return Trainer(factory, source(train), source(train), options);
}

inline ModelFactory lenet_factory() { return model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32); }

inline ModelFactory small_residual_factory(bool batch_norm = false) {
  ResNet18Options options;
  options.width = 8;
  options.batch_norm = batch_norm;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

}  // namespace lockstep::testing
