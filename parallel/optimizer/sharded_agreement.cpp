// Values that the ranks of a ShardedOptimizer must have in common: each updates a part, so that nothing else
// would tell.
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <span>
#include <typeinfo>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/optimizer/sharded_parts.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

int64_t hash_of(const std::string& text) {
  return std::bit_cast<int64_t>(xxhash64(std::as_bytes(std::span(text.data(), text.size()))));
}

constexpr const char* kAlike =
    "build the same optimizer on all replicas, with the same parameters in the same order, for models with "
    "the same weights: attach() gives them those of rank 0";

}  // namespace

void ShardedOptimizer::Parts::require_same_rank(const Endpoint& endpoint) {
  if (world_ == 0) {
    rank_ = endpoint.rank();
    world_ = endpoint.world_size();
  }
  if (rank_ == endpoint.rank() && world_ == endpoint.world_size()) return;
  throw UsageError(fmt::format("a ShardedOptimizer of rank {} of {} was used by rank {} of {}", rank_, world_,
                               endpoint.rank(), endpoint.world_size()),
                   "use it with the endpoints of one communicator; state() and load() carry it to another");
}

void ShardedOptimizer::Parts::agree_on_kind(Endpoint& endpoint) const {
  const auto& given = *optimizer;
  Lines lines = {c10::demangle(typeid(given).name()), fmt::format("bucket_bytes {}", bucket_bytes)};
  for (const auto& line : option_lines()) lines.push_back(line);
  for (size_t i = 0; i < slots.size(); ++i) lines.push_back(text_of(i));
  agree(endpoint, "sharded optimizers", lines, kAlike);
}

void ShardedOptimizer::Parts::agree_to_place(const std::vector<size_t>& numbers, Endpoint& endpoint) const {
  Lines lines;
  for (const auto i : numbers) {
    const auto& param = slots[i].param;
    lines.push_back(fmt::format("{}, strides [{}], values with the hash {:016x}", text_of(i),
                                fmt::join(param.strides(), ", "),
                                std::bit_cast<uint64_t>(hash_of_bits(param.data()))));
  }
  agree(endpoint, "parameters of the sharded optimizers", lines, kAlike);
}

// (groups + 2) int64: the rates, and hashes of the options and of which parameters have gradients.
torch::Tensor ShardedOptimizer::Parts::report(const torch::Device& device) const {
  std::vector<int64_t> numbers;
  for (const auto& group : optimizer->param_groups())
    numbers.push_back(std::bit_cast<int64_t>(group.options().get_lr()));
  std::string mask;
  for (const auto& slot : slots) mask += slot.param.grad().defined() ? '1' : '0';
  numbers.push_back(hash_of(fmt::format("{}", fmt::join(option_lines(), "\n"))));
  numbers.push_back(hash_of(mask));
  const auto host = torch::tensor(numbers, torch::kInt64);
  const auto own = torch::empty(host.sizes(), host.options().device(device));
  upload(host, own);  // a blocking copy would wait for the GPU
  return own;
}

void ShardedOptimizer::Parts::require_same_reports(const torch::Tensor& all) const {
  const auto told = all.accessor<int64_t, 2>();
  for (int64_t rank = 1; rank < told.size(0); ++rank) {
    for (int64_t i = 0; i < told.size(1); ++i) {
      const auto own = told[rank][i], first = told[0][i];
      if (own == first) continue;
      if (i + 1 == told.size(1)) {
        throw UsageError(fmt::format("rank {} has gradients of other parameters than rank 0", rank),
                         "call step() after wait() of the GradientSync, on all replicas");
      }
      const auto what = i + 2 == told.size(1)
                            ? fmt::format("rank {} has other options than rank 0", rank)
                            : fmt::format("the learning rate of group {} is {} on rank {}, {} on rank 0", i,
                                          std::bit_cast<double>(own), rank, std::bit_cast<double>(first));
      throw UsageError(fmt::format("{} of the sharded optimizer", what),
                       "set the options of an optimizer alike on all replicas: each updates a part");
    }
  }
}

std::vector<std::string> ShardedOptimizer::Parts::option_lines() const {
  std::vector<std::string> lines;
  for (size_t g = 0; g < optimizer->param_groups().size(); ++g) {
    lines.push_back(
        fmt::format("group {}: {}", g, torch_state(optimizer->param_groups()[g].options())->options()));
  }
  return lines;
}

}  // namespace lockstep
