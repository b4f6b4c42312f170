// The average of a replica's weights, with which a Trainer evaluates.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

class Endpoint;

// The exponential moving average of the trained parameters, with the numbers of
// torch.optim.swa_utils.AveragedModel and get_ema_multi_avg_fn(decay): the first update takes the parameters,
// each later one moves the averages by 1 - decay of the way to them. Not thread-safe. On a GPU work is queued
// on the current stream.
class WeightAverage {
 public:
  explicit WeightAverage(double decay) : decay_(decay) {}

  // Averages these parameters from now on; flat is the buffer that they lie in. One that was there before
  // keeps its average, by its name. That of another begins with its value.
  void hold(const std::vector<std::string>& names, const Params& params, const torch::Tensor& flat);

  // Call it after each update of the parameters. Later calls than the first one can be captured.
  void update();

  // Returns the averages by name, views of its memory; none before the first update.
  std::vector<NamedTensor> tensors() const;

  // Returns what load() takes, with other values: the parameters themselves.
  std::vector<NamedTensor> expected() const;

  // A collective: all ranks take rank 0's averages; those of others are ignored. begun: it has some; else
  // the averages begin anew. Returns whether they have moved: graphs that were captured update others.
  bool load(const std::vector<NamedTensor>& state, bool begun, Endpoint& endpoint);

  // The buffer of the averages, with the layout of `flat`; undefined before the first update.
  const torch::Tensor& flat() const { return averages_; }

 private:
  std::vector<NamedTensor> named(const torch::Tensor& flat) const;

  const double decay_;
  std::vector<std::string> names_;
  Params params_;           // the module's own
  torch::Tensor trained_;   // their buffer
  torch::Tensor averages_;  // the same of the averages; undefined before the first update
};

// While it lives, averages are in the place of the parameters. Its destructor restores them, bit by bit, and
// the bf16 ones, too, which need not be the parameters rounded: a user may have written to these since.
class AveragesInPlace {
 public:
  // params, averages: buffers of one layout. bf16: their rounded ones, which become the averages' too; may be
  // undefined.
  AveragesInPlace(torch::Tensor params, const torch::Tensor& averages, torch::Tensor bf16);
  ~AveragesInPlace();
  AveragesInPlace(const AveragesInPlace&) = delete;
  AveragesInPlace& operator=(const AveragesInPlace&) = delete;

 private:
  torch::Tensor params_, bf16_;
  const torch::Tensor trained_, trained_bf16_;  // copies of what they were
};

}  // namespace lockstep
