#include <lockstep/app/bench/scaling/bucket_times.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include <lockstep/data/dataset.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

using StepClock = StepTimestamps::Clock;

constexpr int kWarmUp = 2;  // steps
constexpr int kMeasured = 5;

// Rank 0 of several. Notes when sums are posted, and takes no time for them.
class RecordingEndpoint : public Endpoint {
 public:
  struct Post {
    StepClock::time_point when;
    double bytes;
  };

  explicit RecordingEndpoint(torch::Device device) : device_(device) {}

  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  torch::Device device() const override { return device_; }

  Work allreduce_sum(torch::Tensor tensor) override {
    posts_.push_back({StepClock::now(), static_cast<double>(tensor.nbytes())});
    return Work();
  }
  Work broadcast(torch::Tensor, int) override { return Work(); }
  Work all_gather(torch::Tensor tensor, torch::Tensor out) override {
    out.copy_(tensor.expand_as(out));
    return Work();
  }

  void abort(std::exception_ptr error) override { error_ = std::move(error); }
  std::exception_ptr error() const override { return error_; }
  int64_t posted() const override { return static_cast<int64_t>(posts_.size()); }

  std::vector<Post> take_posts() { return std::exchange(posts_, {}); }

 private:
  const torch::Device device_;
  std::vector<Post> posts_;
  std::exception_ptr error_;
};

double between(StepClock::time_point begin, StepClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Shares of the step that has these timestamps.
BucketTimes bucket_times_of(const StepTimestamps& step, const std::vector<RecordingEndpoint::Post>& posts) {
  const double whole = between(step.start, step.update);
  BucketTimes times{.computed = between(step.start, step.compute) / whole};
  for (const auto& post : posts) {
    times.ready.push_back(between(step.start, post.when) / whole);
    times.bytes.push_back(post.bytes);
  }
  return times;
}

// The medians over the steps.
BucketTimes medians_of(const std::vector<BucketTimes>& steps) {
  const auto median_of = [&](const auto& value) {
    std::vector<double> values;
    values.reserve(steps.size());
    for (const auto& step : steps) values.push_back(value(step));
    return median(values);
  };
  BucketTimes result{.bytes = steps.front().bytes};
  result.computed = median_of([](const auto& step) { return step.computed; });
  for (size_t i = 0; i < result.bytes.size(); ++i) {
    result.ready.push_back(median_of([i](const auto& step) { return step.ready[i]; }));
  }
  return result;
}

// The numbers of the first rows, in as many lists as there are micro-batches.
std::vector<std::vector<int64_t>> micro_batches(int64_t rows, int count) {
  std::vector<std::vector<int64_t>> lists;
  int64_t next = 0;
  for (const auto size : shard_sizes(rows, count, {})) {
    auto& list = lists.emplace_back(static_cast<size_t>(size));
    std::iota(list.begin(), list.end(), next);
    next += size;
  }
  return lists;
}

}  // namespace

BucketTimes measure_bucket_times(const TrainPlan& plan, int64_t rows) {
  const auto device = plan.trainer.devices.front();
  const auto model = plan.factory();
  const auto source = resident_sources(plan.data.set.train)(device);
  const auto lists = micro_batches(std::min(rows, plan.data.set.train.size()), plan.trainer.accumulate);
  RecordingEndpoint endpoint(device);
  std::vector<BucketTimes> steps;
  ReplicaWorkers worker({device}, plan.trainer.threads);
  worker.run([&](int) {
    Replica replica(model, endpoint, source, plan.trainer.replica);
    ReplicaStep step{.micro_batches = {}, .batch_rows = rows, .lr = plan.trainer.lr.lr};
    for (const auto& list : lists) {
      if (!list.empty()) step.micro_batches.emplace_back(list);
    }
    endpoint.take_posts();
    for (; step.number < kWarmUp + kMeasured; ++step.number) {
      const auto times = replica.step(step);
      const auto posts = endpoint.take_posts();
      if (step.number >= kWarmUp) steps.push_back(bucket_times_of(times, posts));
    }
  });
  return medians_of(steps);
}

}  // namespace lockstep
