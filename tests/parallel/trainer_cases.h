// Trainers, models and batches that the tests of Trainer share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/support/mishap.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

using Rows = std::vector<int64_t>;

// Full, uneven, a single row.
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

using Loss = std::function<Outcome(const Batch&)>;

// A LeNet whose outcomes are those of change(rows, the usual loss, number of the replica).
inline ModelFactory lenet_with(const std::function<Outcome(const Batch&, const Loss&, int replica)>& change) {
  return [change, built = std::make_shared<int>(0)] {
    auto model = lenet_factory()();
    model.loss_sum = [change, loss = model.loss_sum, replica = (*built)++](const Batch& rows) {
      return change(rows, loss, replica);
    };
    return model;
  };
}

inline ModelFactory small_residual_factory(bool batch_norm = false) {
  ResNet18Options options;
  options.width = 8;
  options.batch_norm = batch_norm;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

inline bool same_tensors(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || !a[i].tensor.equal(b[i].tensor)) return false;
  }
  return true;
}

inline void check_same_tensors(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].name);
    CHECK(a[i].tensor.equal(b[i].tensor));
  }
}

}  // namespace lockstep::testing
