// The network of `lockstep predict`, on all devices.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/commands/named_weights.h>
#include <lockstep/app/commands/predict_rows.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep {

class PredictNetwork {
 public:
  // Throws WeightsError for weights that do not say what their network takes, and what loading them throws.
  PredictNetwork(const NamedWeights& named, std::vector<torch::Device> devices, std::optional<int> threads,
                 Precision precision);

  const NetworkFacts& facts() const { return facts_; }
  bool takes_bytes() const { return takes_bytes_; }

  // Returns the probabilities of rows that rows_in_file() or rows_of_images() has returned, (rows, classes)
  // in double on the host. Throws WeightsError for outputs that are none of the classes, NumericError for
  // ones that are not finite, and UsageError for more or fewer rows than a program allows.
  torch::Tensor probabilities(const torch::Tensor& rows, const RowsOfNetwork& network);

 private:
  const std::string path_;
  const NetworkFacts facts_;
  const std::shared_ptr<const Program> program_;  // null: a model of lockstep
  const bool takes_bytes_;
  const std::vector<torch::Device> devices_;
  const Precision precision_;
  const std::vector<Model> models_;
  ReplicaWorkers workers_;
  const std::shared_ptr<Communicator> communicator_;
};

}  // namespace lockstep
