#include <lockstep/app/bench/scaling/bucket_times.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

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

// A sum that backward has posted.
struct Post {
  StepClock::time_point when;
  double bytes;
};

double between(StepClock::time_point begin, StepClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Shares of the step that has these timestamps.
BucketTimes bucket_times_of(const StepTimestamps& step, const std::vector<Post>& posts) {
  const double whole = between(step.start, step.update);
  BucketTimes times{.computed = between(step.start, step.compute) / whole,
                    .update = between(step.sync, step.update) / whole};
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
  result.update = median_of([](const auto& step) { return step.update; });
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
  const auto source = plan.data.set.train.sources(device);
  const auto lists = micro_batches(std::min(rows, plan.data.set.train.rows), plan.trainer.accumulate);
  std::vector<Post> posts;
  auto options = plan.trainer.replica;
  options.cuda_graph = CudaGraph::kOff;
  options.wait_for_device = !device.is_cpu();
  options.sync.hook = [&posts](Endpoint&, const GradientBucket& bucket) {
    posts.push_back({StepClock::now(), static_cast<double>(bucket.gradients.nbytes())});
    return Work();  // the sum takes no time
  };
  std::vector<BucketTimes> steps;
  const auto alone = make_communicator({.devices = {device}, .threads = plan.trainer.threads});
  ReplicaWorkers worker({device}, plan.trainer.threads);
  worker.run(*alone, [&](int, Endpoint& endpoint) {
    Replica replica(model, endpoint, source, options);
    ReplicaStep step{.micro_batches = {}, .batch_rows = rows, .lr = plan.trainer.lr.lr};
    for (const auto& list : lists) {
      if (!list.empty()) step.micro_batches.emplace_back(list);
    }
    for (; step.number < kWarmUp + kMeasured; ++step.number) {
      posts.clear();
      const auto times = replica.step(step);
      if (step.number >= kWarmUp) steps.push_back(bucket_times_of(times, posts));
    }
  });
  return medians_of(steps);
}

}  // namespace lockstep
