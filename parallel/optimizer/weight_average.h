// The average of a replica's weights, with which a Trainer evaluates.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include <lockstep/parallel/optimizer/part_buffer.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Endpoint;

// The exponential moving average of the trained parameters, with the numbers of
// torch.optim.swa_utils.AveragedModel and get_ema_multi_avg_fn(decay): the first update takes the parameters,
// each later one moves the averages by 1 - decay of the way to them. It keeps those that this rank owns. Not
// thread-safe. On a GPU work is queued on the current stream.
class WeightAverage {
 public:
  explicit WeightAverage(double decay) : decay_(decay) {}

  // Averages these parameters from now on; flat is the buffer that they lie in. One that was there before
  // keeps its average, by its name. That of another begins with its value. A collective if ranks own parts.
  void hold(std::shared_ptr<const FlatOrder> order, const torch::Tensor& flat);

  // Call it after each update of the parameters. Later calls than the first one can be captured.
  void update();

  // Returns the averages by name, views of its memory: none before the first update, and where ranks own
  // parts.
  std::vector<NamedTensor> tensors() const;

  // Host copies of the averages of all ranks; none before the first update. A collective if ranks own parts.
  // memory: for the copies; null: none are kept.
  std::vector<NamedTensor> host_copies(const TensorAllocator* memory) const;

  // Returns what load() takes, with other values: the parameters themselves.
  std::vector<NamedTensor> expected() const;

  // A collective: all ranks take rank 0's averages; those of others are ignored. begun: it has some; else
  // the averages begin anew. Returns whether they have moved: graphs that were captured update others.
  bool load(const std::vector<NamedTensor>& state, bool begun, Endpoint& endpoint);

  // Null before the first update.
  const PartBuffer* averages() const { return averages_ ? &*averages_ : nullptr; }

 private:
  const double decay_;
  std::shared_ptr<const FlatOrder> order_;
  torch::Tensor trained_;               // the buffer of the parameters
  std::optional<PartBuffer> averages_;  // none before the first update
};

// While it lives, averages are in the place of the parameters. Its destructor restores them, bit by bit, and
// the bf16 ones, too, which need not be the parameters rounded: a user may have written to these since.
class AveragesInPlace {
 public:
  // params: the buffer that the averages are of. bf16: its rounded numbers, which become the averages' too;
  // may be undefined. A collective if ranks own parts of the averages.
  AveragesInPlace(torch::Tensor params, const PartBuffer& averages, torch::Tensor bf16);
  ~AveragesInPlace();
  AveragesInPlace(const AveragesInPlace&) = delete;
  AveragesInPlace& operator=(const AveragesInPlace&) = delete;

 private:
  torch::Tensor params_, bf16_;
  const torch::Tensor trained_, trained_bf16_;  // copies of what they were
};

}  // namespace lockstep
