// Types that data/, models/ and parallel/ exchange. None of these three includes another.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/batch.h>
#include <lockstep/support/row_sums.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// The parameters of one replica, in the model's order, all on one device.
using Params = std::vector<torch::Tensor>;

// A parameter or buffer and its name in the module, such as "conv1.weight".
struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// A network as a function, as in the chapter: takes X (n, channels, height, width) and the parameters, and
// returns logits (n, classes).
using Network = std::function<torch::Tensor(const torch::Tensor& X, const Params& params)>;

// A metric of some rows: a sum over them and, if the model declares one, its weight. Both are numbers, () on
// the rows' device: of a count integers, otherwise floating point. Trainer adds them in double, without their
// graph.
struct Metric {
  Metric() = default;
  Metric(torch::Tensor sum_of_rows, torch::Tensor own_weight = {})
      : sum(std::move(sum_of_rows)), weight(std::move(own_weight)) {}

  torch::Tensor sum, weight;
};

// A model's results for some rows, on their device. These are sums over the rows, not means, so the sums of a
// batch's shards add up to the batch's.
struct Outcome {
  torch::Tensor loss;  // () floating point, sum of the rows' losses; call backward() on it
  c10::SmallVector<Metric, 4> metrics = {};  // those that the model declares, in its order
};

// A network and its loss. The module may be moved to another device at any time: loss_sum uses the module's
// tensors.
struct Model {
  std::shared_ptr<torch::nn::Module> module;
  // Not called without rows, but with BnPolicy::kSync. Evaluations compute without gradients: a loss that
  // calls torch::autograd::grad() enables them itself (torch::AutoGradMode).
  std::function<Outcome(const Batch&)> loss_sum;
  std::vector<MetricKind> metrics = {};  // of each outcome
  // For a loss that is no mean over rows, such as one per token: the weight of these rows, a number () on
  // their device, of the batch alone. Trainer divides the sum of the losses by the sum of the weights of all
  // rows of a batch, which it knows before the backward passes. No function: each row weighs 1.
  std::function<torch::Tensor(const Batch&)> weight = {};
  // The outputs for these rows, (rows, ...) on their device: what Trainer::predict() returns. It looks at
  // inputs alone, since the rows may have no targets. No function: not supported.
  std::function<torch::Tensor(const Batch&)> output = {};
  // Makes the model compute with these bfloat16 weights, in the order of its parameters. The caller updates
  // them after every step, so the model does not convert its fp32 parameters. An empty list ends that. No
  // function: not supported.
  std::function<void(const Params& weights)> use_bf16_weights = {};
};

// Builds one replica of a model on the CPU. Called once per replica; rank 0's parameters and buffers then
// replace those of the others.
using ModelFactory = std::function<Model()>;

// Where replicas get their rows from. There is one source per distinct device, shared by the replicas on it.
// Implementations must be thread-safe: several threads call gather() at once, each with its own `into`.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int64_t size() const = 0;  // number of rows

  // The tensors of each batch, known before the first one. Always the same.
  virtual BatchSpec spec() const = 0;

  // Writes the rows with these numbers into `into` on the source's device, as spec() says. rows: (n) int64 on
  // that device, each 0 .. size() - 1, which the caller has checked; n may be 0. epoch: from 0, for sources
  // that give other rows in each, such as by augmentation; evaluations ask for epoch 0. `into` has the
  // tensors of spec(), which are undefined at first: writes in place into those that have the right shape,
  // dtype and device, and replaces the others. On a GPU it only queues work on the calling thread's current
  // stream.
  virtual void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const = 0;

  // Tells that gather() will soon be asked for these rows, so that they can be read ahead. Returns at once.
  // Rows may be told that are never asked for, and rows be asked for that were not told.
  virtual void will_need(std::span<const int64_t> /*rows*/, int64_t /*epoch*/) const {}

  // Returns true if gather() depends on its rows alone, which lie on the device: it can then be captured into
  // a graph, and be replayed on other rows. Otherwise it is called before each replay.
  virtual bool can_be_captured() const { return true; }

  // Settings that the sources of all processes must have in common, as text, such as a seed that rows depend
  // on: a Trainer compares it. Empty: none.
  virtual std::string settings() const { return {}; }
};

// Makes the source of one device.
using SourceFactory = std::function<std::shared_ptr<const BatchSource>(torch::Device device)>;

}  // namespace lockstep
