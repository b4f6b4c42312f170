#include <lockstep/parallel/training/load_state.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <lockstep/parallel/training/replica_state.h>

namespace lockstep {
namespace {

constexpr int64_t kShares = 13;  // where they begin among the numbers

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // of what may be empty

std::optional<double> optional_of(double number) {
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

// The tensors of `all` that have these names, in their order.
std::vector<NamedTensor> named_as(const std::vector<NamedTensor>& names,
                                  const std::vector<NamedTensor>& all) {
  std::vector<NamedTensor> result;
  for (const auto& wanted : names) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& tensor) { return tensor.name == wanted.name; });
    if (found != all.end()) result.push_back(*found);
  }
  return result;
}

std::vector<ReplicaState> replicas_for(const TrainState& state, int world,
                                       const std::vector<NamedTensor>& buffers) {
  if (state.replicas.size() == static_cast<size_t>(world)) {
    auto replicas = state.replicas;
    for (auto& replica : replicas) replica.buffers = named_as(buffers, replica.buffers);
    return replicas;
  }
  ReplicaState shared = state.replicas.empty() ? ReplicaState{} : state.replicas.front();
  shared.buffers = named_as(buffers, state.model);
  shared.rows_trained =
      std::accumulate(state.replicas.begin(), state.replicas.end(), int64_t{0},
                      [](int64_t sum, const ReplicaState& replica) { return sum + replica.rows_trained; });
  shared.rows_trained /= world;
  return std::vector<ReplicaState>(static_cast<size_t>(world), shared);
}

// (rows.size(), the longest one's length), zeros behind shorter ones
torch::Tensor as_table(const std::vector<torch::Tensor>& rows) {
  int64_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.numel());
  const auto table = torch::zeros({static_cast<int64_t>(rows.size()), width}, torch::kUInt8);
  for (size_t i = 0; i < rows.size(); ++i) {
    table[static_cast<int64_t>(i)].narrow(0, 0, rows[i].numel()).copy_(rows[i]);
  }
  return table;
}

}  // namespace

torch::Tensor StateNumbers::to_tensor(int world) const {
  std::vector<double> numbers = {fits ? 1. : 0.,
                                 static_cast<double>(steps),
                                 static_cast<double>(replica_bytes),
                                 steps_by_parameter ? 1. : 0.,
                                 has_average ? 1. : 0.,
                                 lr.factor,
                                 lr.best.value_or(kNone),
                                 static_cast<double>(lr.bad_losses),
                                 lr.fixed.value_or(kNone),
                                 loss_scale ? loss_scale->scale : kNone,
                                 static_cast<double>(loss_scale ? loss_scale->good_steps : 0),
                                 static_cast<double>(loss_scale ? loss_scale->updates : 0),
                                 static_cast<double>(loss_scale ? loss_scale->steps : 0)};
  numbers.resize(numbers.size() + static_cast<size_t>(world));  // shares of 0: none
  std::copy(split.begin(), split.end(), numbers.begin() + kShares);
  return torch::tensor(numbers, torch::kFloat64);
}

StateNumbers StateNumbers::from_tensor(const torch::Tensor& numbers) {
  const auto host = numbers.cpu().contiguous();
  const auto* values = host.const_data_ptr<double>();
  StateNumbers result{.fits = values[0] != 0,
                      .steps = static_cast<int64_t>(values[1]),
                      .replica_bytes = static_cast<int64_t>(values[2]),
                      .steps_by_parameter = values[3] != 0,
                      .has_average = values[4] != 0,
                      .lr = {.factor = values[5],
                             .best = optional_of(values[6]),
                             .bad_losses = static_cast<int64_t>(values[7]),
                             .fixed = optional_of(values[8])}};
  if (!std::isnan(values[9])) {
    result.loss_scale = {.scale = values[9],
                         .good_steps = static_cast<int64_t>(values[10]),
                         .updates = static_cast<int64_t>(values[11]),
                         .steps = static_cast<int64_t>(values[12])};
  }
  if (values[kShares] > 0) result.split.assign(values + kShares, values + host.numel());
  return result;
}

torch::Tensor pack_replicas(const TrainState& state, int world, const std::vector<NamedTensor>& buffers) {
  std::vector<torch::Tensor> packed;
  for (const auto& replica : replicas_for(state, world, buffers)) packed.push_back(pack(replica));
  return as_table(packed);
}

torch::Tensor scatter_rows(const torch::Tensor& table, int64_t row_bytes, Endpoint& endpoint) {
  const auto options = torch::TensorOptions(torch::kUInt8).device(endpoint.device());
  auto all = torch::empty({endpoint.world_size(), row_bytes}, options);
  if (endpoint.rank() == 0) all.copy_(table);
  endpoint.broadcast(all, 0).wait();
  return all[endpoint.rank()].cpu();
}

}  // namespace lockstep
