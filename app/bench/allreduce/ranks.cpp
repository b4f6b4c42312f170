#include <lockstep/app/bench/allreduce/ranks.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <lockstep/app/bench/allreduce/sent_bytes.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/statistics.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

constexpr int64_t kValues = 251;  // a prime, so that chunks begin with different values
constexpr int kCountedSums = 4;

// (count) float: 1 + (j + 17 r) mod 251 in element j of rank r.
torch::Tensor input_of(int rank, int64_t count, torch::Device device) {
  return torch::arange(count, torch::TensorOptions(torch::kInt64).device(device))
      .add_(17 * rank)
      .remainder_(kValues)
      .add_(1)
      .to(torch::kFloat32);
}

void wait_for(torch::Device device) {
  if (!device.is_cpu()) current_stream(device).synchronize();
}

// Collective. Returns, for each element, the largest value of all ranks. values (n) double
std::vector<double> largest(Endpoint& endpoint, const std::vector<double>& values) {
  const auto on_host = torch::tensor(values, torch::kFloat64);
  const auto mine = on_host.to(endpoint.device());
  auto all = torch::empty({endpoint.world_size(), mine.numel()}, mine.options());
  endpoint.all_gather(mine, all).wait();
  const auto most = std::get<0>(all.cpu().max(0)).contiguous();
  return {most.const_data_ptr<double>(), most.const_data_ptr<double>() + most.numel()};
}

// Collective. Returns when all ranks have called it.
void synchronise(Endpoint& endpoint) { largest(endpoint, {0}); }

std::vector<double> sum_times(Endpoint& endpoint, torch::Tensor& tensor, int iterations) {
  std::vector<double> seconds;
  Stopwatch watch;
  if (!endpoint.device().is_cpu()) {
    for (int i = 0; i < iterations; ++i) endpoint.allreduce_sum(tensor).wait();
    wait_for(endpoint.device());
    return std::vector<double>(static_cast<size_t>(iterations), watch.lap() / iterations);
  }
  for (int i = 0; i < iterations; ++i) {
    endpoint.allreduce_sum(tensor).wait();
    seconds.push_back(watch.lap());
  }
  return seconds;
}

void copy(torch::Tensor& to, const torch::Tensor& from, int64_t count) {
  if (!to.is_cpu() || !from.is_cpu()) {
    to.narrow(0, 0, count).copy_(from.narrow(0, 0, count), /*non_blocking=*/true);
  } else if (count > 0) {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace

AllreduceRanks::AllreduceRanks(const std::vector<torch::Device>& devices, int threads,
                               const std::vector<Allreduce>& algorithms,
                               const std::shared_ptr<ProcessGroup>& group)
    : workers_(devices, threads), tensors_(devices.size()), copies_(devices.size()) {
  for (const auto algorithm : algorithms) {
    communicators_.push_back(make_communicator(
        {.devices = devices, .threads = threads, .algorithm = algorithm, .process_group = group}));
  }
}

// Allocates in the replicas' threads, so that memory is near the core that first touches it.
void AllreduceRanks::set_count(int64_t count) {
  workers_.run([&](int local) {
    const auto options = torch::TensorOptions(torch::kFloat32).device(workers_.devices()[local]);
    own(local) = torch::zeros({count}, options);
    copies_[static_cast<size_t>(local)] = torch::zeros({count}, options);
  });
}

int64_t AllreduceRanks::wrong_elements(size_t algorithm) {
  std::vector<int64_t> wrong(tensors_.size());
  workers_.run(*communicators_[algorithm], [&](int local, Endpoint& endpoint) {
    auto& tensor = own(local);
    auto expected = torch::zeros_like(tensor);
    for (int rank = 0; rank < endpoint.world_size(); ++rank) {
      expected += input_of(rank, tensor.numel(), endpoint.device());
    }
    tensor.copy_(input_of(endpoint.rank(), tensor.numel(), endpoint.device()));
    endpoint.allreduce_sum(tensor).wait();
    // Gathered, not summed, because the sum is under test.
    const auto mine = (tensor != expected).sum().reshape({1}).to(torch::kFloat64);
    auto all = torch::empty({endpoint.world_size(), 1}, mine.options());
    endpoint.all_gather(mine, all).wait();
    wrong[static_cast<size_t>(local)] = all.sum().item<int64_t>();
    tensor.zero_();  // repeated sums would overflow
  });
  return wrong.front();
}

double AllreduceRanks::seconds(size_t algorithm, int iterations) {
  std::vector<double> result;
  workers_.run(*communicators_[algorithm], [&](int local, Endpoint& endpoint) {
    synchronise(endpoint);
    endpoint.allreduce_sum(own(local)).wait();  // warm-up, and late ranks catch up
    wait_for(endpoint.device());
    const auto slowest = largest(endpoint, sum_times(endpoint, own(local), iterations));
    if (local == 0) result = slowest;
  });
  return median(result);
}

// The first local replica counts. Nothing travels before it has posted the first sum; when its last sum is
// done, so is all that the process sends.
std::optional<int64_t> AllreduceRanks::bytes_on_wire(size_t algorithm) {
  std::vector<double> result;  // bytes of a sum, and whether they are unknown
  workers_.run(*communicators_[algorithm], [&](int local, Endpoint& endpoint) {
    synchronise(endpoint);
    const auto before = local == 0 ? sent_bytes() : std::optional<int64_t>(0);
    for (int i = 0; i < kCountedSums; ++i) {
      endpoint.allreduce_sum(own(local)).wait();
      wait_for(endpoint.device());
    }
    const auto after = local == 0 ? sent_bytes() : std::optional<int64_t>(0);
    const bool known = before && after;
    const double bytes = known ? static_cast<double>(*after - *before) / kCountedSums : 0;
    const auto most = largest(endpoint, {bytes, known ? 0. : 1.});
    if (local == 0) result = most;
  });
  if (result[1] > 0) return std::nullopt;
  return std::llround(result[0]);
}

double AllreduceRanks::copy_seconds() {
  double result = 0;
  workers_.run(*communicators_.front(), [&](int local, Endpoint& endpoint) {
    const auto n = static_cast<int64_t>(endpoint.world_size());
    auto& to = copies_[static_cast<size_t>(local)];
    const auto& from = own((local + 1) % workers_.size());
    const int64_t count = from.numel();
    const int64_t must_move = 2 * (n - 1) * count / n;
    synchronise(endpoint);
    Stopwatch watch;
    for (int64_t done = 0; done < must_move; done += count) copy(to, from, std::min(count, must_move - done));
    wait_for(endpoint.device());
    const auto slowest = largest(endpoint, {watch.lap()});
    if (local == 0) result = slowest.front();
  });
  return result;
}

}  // namespace lockstep
