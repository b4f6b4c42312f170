// A value of each replica, over all replicas, in one call each: a collective, which all replicas call in the
// same order, each in its own thread. All get the same result.
//
//   const double mean_return = sum_over_replicas(own_return, endpoint) / step.rows();
//   if (is_first(endpoint)) std::puts("done");
//
// A Step of Replicas (parallel/replicas/step.h) is such an endpoint. Numbers are int64 or double, and are
// added in the order of ranks. Calls with numbers, and barrier(), wait for a GPU; those with tensors do not.
// All throw the error that ended a collective.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// The sum, the mean or the elementwise maximum of the replicas' tensors, of one shape and dtype: a new tensor
// on the endpoint's device, without a graph. Sums take the dtypes of Endpoint::allreduce_sum(); the mean of
// integers is floating point. NaN counts as the maximum. The maximum gathers the tensors of all replicas.
// (Are your values means over rows? With shards of different sizes the mean of means is another number:
// divide a sum over the rows by the rows of all.)
torch::Tensor sum_over_replicas(const torch::Tensor& own, Endpoint& endpoint);
torch::Tensor mean_over_replicas(const torch::Tensor& own, Endpoint& endpoint);
torch::Tensor max_over_replicas(const torch::Tensor& own, Endpoint& endpoint);

// Returns rank `root`'s tensor. All ranks give one of the same shape and dtype, any dtype.
torch::Tensor value_of_replica(const torch::Tensor& own, Endpoint& endpoint, int root = 0);

// Returns the numbers of all ranks, in order.
std::vector<int64_t> gather_over_replicas(int64_t own, Endpoint& endpoint);
std::vector<double> gather_over_replicas(double own, Endpoint& endpoint);

// Throws UsageError unless there is such a rank.
void require_rank(int rank, const Endpoint& endpoint);

// Returns when all replicas have called it; on a GPU, when they have done what they had queued before.
void barrier(Endpoint& endpoint);

// Returns true for rank 0, which prints and writes for all.
inline bool is_first(const Endpoint& endpoint) { return endpoint.rank() == 0; }

template <class N>
concept ReplicaNumber = std::integral<N> || std::floating_point<N>;

// The type in which a number travels.
template <ReplicaNumber N>
using WideNumber = std::conditional_t<std::integral<N>, int64_t, double>;

template <ReplicaNumber N>
WideNumber<N> sum_over_replicas(N own, Endpoint& endpoint) {
  WideNumber<N> sum = 0;
  for (const auto number : gather_over_replicas(static_cast<WideNumber<N>>(own), endpoint)) sum += number;
  return sum;
}

template <ReplicaNumber N>
double mean_over_replicas(N own, Endpoint& endpoint) {
  return static_cast<double>(sum_over_replicas(own, endpoint)) / endpoint.world_size();
}

template <ReplicaNumber N>
WideNumber<N> max_over_replicas(N own, Endpoint& endpoint) {
  const auto all = gather_over_replicas(static_cast<WideNumber<N>>(own), endpoint);
  auto largest = all.front();
  for (const auto number : all) {
    if (std::isnan(static_cast<double>(largest))) break;
    if (!(number <= largest)) largest = number;
  }
  return largest;
}

template <ReplicaNumber N>
WideNumber<N> value_of_replica(N own, Endpoint& endpoint, int root = 0) {
  const auto all = gather_over_replicas(static_cast<WideNumber<N>>(own), endpoint);
  require_rank(root, endpoint);
  return all[static_cast<size_t>(root)];
}

}  // namespace lockstep
