// The types that data/, models/ and parallel/ exchange; none of these three includes another.
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

// The parameters of one replica, in the model's own order, all on one device.
using Params = std::vector<torch::Tensor>;

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// A network as the chapter writes it: X (n, channels, height, width) and its parameters in, logits (n,
// classes) out.
using Network = std::function<torch::Tensor(const torch::Tensor& X, const Params& params)>;

// Rows of a batch on one device. Both may have 0 rows.
struct Inputs {
  torch::Tensor X;  // (n, 1, 28, 28) floating point, in [0, 1]
  torch::Tensor y;  // (n) int64, class of each row
};

// What a model makes of some rows, on their device: sums over the rows, never means, so that the sums of any
// parts of a batch add up to the batch's.
struct Outcome {
  torch::Tensor loss;  // () floating point, sum of the rows' losses; backward() starts here
  torch::Tensor top1;  // () int64, rows whose class has the largest logit
  torch::Tensor top5;  // () int64, rows whose class is among the five largest
};

// A network and its loss. Whoever holds one may move the module to a device and back: loss_sum works on the
// module's own tensors.
struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Outcome(const Inputs&)> loss_sum;
  // Makes it compute in bfloat16 with these copies of its parameters, in their order, that the caller keeps
  // up to date: so nobody need convert them in every step. Empty: it has no use for any.
  std::function<void(const Params& copies)> use_bf16_weights = {};
};

// Builds one replica of a model, on the host. Called once a replica; rank 0's parameters and buffers replace
// those of the others.
using ModelFactory = std::function<Model()>;

// Where a replica's rows come from: one per distinct device, shared by the replicas on it. Implementations
// are safe to call from several threads at once, each with an `into` of its own.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int64_t size() const = 0;  // rows it holds

  // Writes the rows with these numbers, normalised, on the source's device and the calling thread's current
  // stream. rows (n) int64 on that device, each in 0 .. size() - 1: upload_rows() has checked them. Tensors
  // of `into` that already have the right shape are written in place, others are replaced. On a GPU it only
  // queues work, since it may be recorded into a graph.
  virtual void gather(const torch::Tensor& rows, Inputs& into) const = 0;
};

// Makes the source that serves one device.
using SourceFactory = std::function<std::shared_ptr<const BatchSource>(torch::Device device)>;

}  // namespace lockstep
