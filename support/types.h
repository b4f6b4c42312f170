// Types that data/, models/ and parallel/ exchange. None of these three includes another.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

// Rows of a batch on one device. Both may have 0 rows.
struct Inputs {
  // (n, ...); lockstep's models take images (n, 1, 28, 28), floating point in [0, 1]. Trainer gives floating
  // point and complex numbers to a model in the type of its precision (bf16: float32, which autocast
  // converts), and all others, such as token ids and masks, in the type in which the BatchSource has them.
  torch::Tensor X;
  // (n) classes of the rows, int64 (see classification_outcome()); a loss of your own may take others. Not
  // converted.
  torch::Tensor y;
};

// A model's results for some rows, on their device. These are sums over the rows, not means, so the sums of a
// batch's shards add up to the batch's. All three are set: a model that counts nothing gives zeros.
struct Outcome {
  torch::Tensor loss;  // () floating point, sum of the rows' losses; call backward() on it
  torch::Tensor top1;  // () int64, number of rows whose class has the largest logit
  torch::Tensor top5;  // () int64, number of rows whose class has one of the five largest logits
};

// A network and its loss. The module may be moved to another device at any time: loss_sum uses the module's
// tensors.
struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Outcome(const Inputs&)> loss_sum;
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

  // Writes the rows with these numbers, normalised, into `into` on the source's device. rows: (n) int64 on
  // that device, each 0 .. size() - 1, which the caller has checked. Writes in place into tensors of `into`
  // that have the right shape, dtype and device, and replaces the others. On a GPU it only queues work on the
  // calling thread's current stream, so that it can be captured into a graph.
  virtual void gather(const torch::Tensor& rows, Inputs& into) const = 0;
};

// Makes the source of one device.
using SourceFactory = std::function<std::shared_ptr<const BatchSource>(torch::Device device)>;

}  // namespace lockstep
