#include <lockstep/parallel/collectives/part_collectives.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include <lockstep/parallel/collectives/allreduce/sum_chunks.h>
#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/dtypes.h>
#include <lockstep/parallel/collectives/local_round.h>
#include <lockstep/parallel/collectives/process_exchange.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

ElementRange part_of(const PartBounds& bounds, int rank) {
  return {bounds[static_cast<size_t>(rank)], bounds[static_cast<size_t>(rank) + 1]};
}

}  // namespace

void sum_locally(const LocalRound& round, const ElementRange& range) {
  if (round.size() == 1 || range.empty()) return;
  std::vector<torch::Tensor> addends;
  for (int other = 0; other < round.size(); ++other) addends.push_back(round.elements(other, range));
  const auto& own = addends[static_cast<size_t>(round.local)];
  sum_chunks(addends, {own}, own.device());
}

std::exception_ptr parts_problem(const Endpoint& endpoint, const std::string& what,
                                 const torch::Tensor& tensor, const PartBounds& bounds) {
  const bool fit = bounds.size() == static_cast<size_t>(endpoint.world_size()) + 1 && bounds.front() == 0 &&
                   bounds.back() == tensor.numel() && std::is_sorted(bounds.begin(), bounds.end());
  if (!fit) {
    return std::make_exception_ptr(
        UsageError(fmt::format("{} of {} between {} ranks with the bounds {}", what,
                               describe_elements(tensor), endpoint.world_size(), fmt::join(bounds, ", ")),
                   "bounds are one more than ranks, and ascend from 0 to the number of elements"));
  }
  if (what == "reduce_scatter" && !(tensor.is_floating_point() && can_be_summed(tensor.scalar_type()))) {
    return std::make_exception_ptr(
        UsageError(fmt::format("{} cannot add {}", what, describe_elements(tensor)),
                   "convert them to floating-point numbers, or use allreduce_sum()"));
  }
  return tensor_problem(endpoint, what, tensor);
}

void reduce_scatter_locally(const LocalRound& round, const PartBounds& bounds) {
  sum_locally(round, part_of(bounds, round.local));
}

void gather_parts_locally(const LocalRound& round, const PartBounds& bounds) {
  const int rank = round.local + (round.exchange ? round.exchange->layout.first_rank() : 0);
  const auto part = part_of(bounds, rank);
  if (part.empty()) return;
  for (int other = 0; other < round.size(); ++other) {
    if (other != round.local) round.elements(other, part).copy_(round.elements(round.local, part));
  }
}

}  // namespace lockstep
