#include <lockstep/parallel/trainer.h>

#include <torch/types.h>

#include <map>

#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

// One source a replica, made once per distinct device.
std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory) {
  std::map<std::string, std::shared_ptr<const BatchSource>> by_device;
  std::vector<std::shared_ptr<const BatchSource>> sources;
  for (const auto& device : devices) {
    auto& source = by_device[device.str()];
    if (!source) source = factory(device);
    sources.push_back(source);
  }
  return sources;
}

}  // namespace

TrainSums& TrainSums::operator+=(const TrainSums& other) {
  loss += other.loss;
  top1 += other.top1;
  top5 += other.top5;
  rows += other.rows;
  return *this;
}

Trainer::Trainer(const Params& initial, Network net, const SourceFactory& train, const SourceFactory& test,
                 TrainerOptions options)
    : net_(std::move(net)),
      options_(std::move(options)),
      workers_(options_.devices, options_.threads),
      train_sources_(sources_for(options_.devices, train)),
      test_sources_(sources_for(options_.devices, test)),
      shards_(options_.devices.size()),
      sums_(options_.devices.size()) {
  for (const auto& device : options_.devices) device_params_.push_back(get_params(initial, device));
}

StepTimes Trainer::step(std::span<const int64_t> rows) {
  const auto sizes = shard_sizes(static_cast<int64_t>(rows.size()), world_size());
  std::vector<std::span<const int64_t>> shard_rows;
  for (const auto size : sizes) {
    shard_rows.push_back(rows.first(static_cast<size_t>(size)));
    rows = rows.subspan(static_cast<size_t>(size));
    rows_ += size;
  }

  Stopwatch watch;
  workers_.run([&](int rank) {
    const auto i = static_cast<size_t>(rank);
    train_sources_[i]->gather(shard_rows[i], shards_[i]);
  });
  const double data = watch.lap();
  auto outcome = train_batch(shards_, device_params_, net_, options_.lr, workers_);
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] = sums_[i].defined() ? sums_[i].add_(outcome.sums[i]) : outcome.sums[i];
  }
  outcome.times.data = data;
  return outcome.times;
}

TrainSums Trainer::take_sums() {
  TrainSums total{.rows = std::exchange(rows_, 0)};
  for (auto& sums : sums_) {
    if (!sums.defined()) continue;
    const auto host = sums.cpu();  // waits for the replica
    total.loss += host[0].item<double>();
    total.top1 += host[1].item<int64_t>();
    total.top5 += host[2].item<int64_t>();
    sums = torch::Tensor();
  }
  return total;
}

Evaluation Trainer::evaluate() { return lockstep::evaluate(net_, device_params_, test_sources_, workers_); }

}  // namespace lockstep
