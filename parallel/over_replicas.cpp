#include <lockstep/parallel/over_replicas.h>

#include <fmt/format.h>

#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

torch::Tensor own_copy(const torch::Tensor& own, const Endpoint& endpoint) {
  return torch::empty(own.sizes(), own.options().device(endpoint.device())).copy_(own.detach());
}

template <class N>
std::vector<N> gather_numbers(N own, Endpoint& endpoint) {
  const auto options = torch::TensorOptions(torch::CppTypeToScalarType<N>::value).device(endpoint.device());
  const auto all = gather_tensors(torch::full({}, own, options), endpoint).cpu();
  if (const auto error = endpoint.error()) std::rethrow_exception(error);  // on a GPU wait() was too early
  const auto* numbers = all.template const_data_ptr<N>();
  return {numbers, numbers + all.numel()};
}

}  // namespace

torch::Tensor sum_over_replicas(const torch::Tensor& own, Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  auto sum = own_copy(own, endpoint);
  endpoint.allreduce_sum(sum).wait();
  return sum;
}

torch::Tensor mean_over_replicas(const torch::Tensor& own, Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  return sum_over_replicas(own, endpoint).div(endpoint.world_size());
}

torch::Tensor max_over_replicas(const torch::Tensor& own, Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  return gather_tensors(own_copy(own, endpoint), endpoint).amax(0);
}

torch::Tensor value_of_replica(const torch::Tensor& own, Endpoint& endpoint, int root) {
  const torch::NoGradGuard no_grad;
  require_rank(root, endpoint);
  auto value = own_copy(own, endpoint);
  endpoint.broadcast(value, root).wait();
  return value;
}

std::vector<int64_t> gather_over_replicas(int64_t own, Endpoint& endpoint) {
  return gather_numbers(own, endpoint);
}

std::vector<double> gather_over_replicas(double own, Endpoint& endpoint) {
  return gather_numbers(own, endpoint);
}

void require_rank(int rank, const Endpoint& endpoint) {
  if (rank >= 0 && rank < endpoint.world_size()) return;
  throw UsageError(fmt::format("there is no rank {} among {} replicas", rank, endpoint.world_size()),
                   "ranks begin at 0");
}

void barrier(Endpoint& endpoint) { gather_over_replicas(int64_t{0}, endpoint); }

}  // namespace lockstep
