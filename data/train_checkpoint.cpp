#include <lockstep/data/train_checkpoint.h>

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using StateJson = nlohmann::ordered_json;

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kReplicasFile = "replicas.safetensors";
constexpr std::string_view kBuffers = "buffers.";
constexpr size_t kMostSavedReplicas = 1 << 16;

[[noreturn]] void not_a_state(const std::string& why) {
  throw WeightsError(fmt::format("this is no checkpoint of a training run: {}", why),
                     "name one that holds the state of a Trainer");
}

std::vector<NamedTensor> replica_tensors(std::vector<ReplicaState> replicas) {
  std::vector<NamedTensor> tensors;
  for (size_t rank = 0; rank < replicas.size(); ++rank) {
    auto& replica = replicas[rank];
    const auto add = [&](const std::string& name, torch::Tensor tensor) {
      tensors.push_back({fmt::format("{}.{}", rank, name), std::move(tensor)});
    };
    add("rows_trained", torch::tensor(replica.rows_trained, torch::kInt64));
    add("host_generator", replica.host_generator);
    add("device_generator", replica.device_generator);
    for (auto& buffer : replica.buffers) add(std::string(kBuffers) + buffer.name, std::move(buffer.tensor));
  }
  return tensors;
}

void read_replica_tensor(NamedTensor named, std::vector<ReplicaState>& replicas) {
  size_t rank = 0;
  const auto& name = named.name;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  const std::string_view part(stop, static_cast<size_t>(name.data() + name.size() - stop));
  if (error != std::errc() || rank >= kMostSavedReplicas || !part.starts_with('.')) {
    not_a_state(fmt::format("{} has a tensor named '{}'", kReplicasFile, name));
  }
  if (replicas.size() <= rank) replicas.resize(rank + 1);
  auto& replica = replicas[rank];
  const auto what = part.substr(1);
  if (what.starts_with(kBuffers)) {
    replica.buffers.push_back({std::string(what.substr(kBuffers.size())), std::move(named.tensor)});
  } else if (what == "rows_trained" && named.tensor.numel() == 1 &&
             named.tensor.scalar_type() == torch::kInt64) {
    replica.rows_trained = named.tensor.item<int64_t>();
  } else if (what == "host_generator" && named.tensor.scalar_type() == torch::kUInt8) {
    replica.host_generator = std::move(named.tensor);
  } else if (what == "device_generator" && named.tensor.scalar_type() == torch::kUInt8) {
    replica.device_generator = std::move(named.tensor);
  } else {
    not_a_state(fmt::format("{} has a tensor named '{}'", kReplicasFile, name));
  }
}

std::vector<NamedTensor> take_tensors(Checkpoint& checkpoint, const char* name) {
  const auto file = checkpoint.tensors.find(name);
  if (file == checkpoint.tensors.end()) not_a_state(fmt::format("it has no {}", name));
  return std::move(file->second.tensors);
}

StateJson or_null(std::optional<double> number) { return number ? StateJson(*number) : StateJson(); }

StateJson to_json(const LrState& lr) {
  return {{"factor", lr.factor},
          {"best", or_null(lr.best)},
          {"bad_losses", lr.bad_losses},
          {"fixed", or_null(lr.fixed)}};
}

std::optional<double> optional_number(const StateJson& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

// A checkpoint of an earlier version has none, and a schedule that needs none.
LrState read_lr(const StateJson& state) {
  if (!state.contains("lr")) return {};
  const auto& json = state.at("lr");
  return {.factor = json.at("factor").get<double>(),
          .best = optional_number(json.at("best")),
          .bad_losses = json.at("bad_losses").get<int64_t>(),
          .fixed = optional_number(json.at("fixed"))};
}

StateJson to_json(const LossScaleState& state) {
  return {{"scale", state.scale},
          {"good_steps", state.good_steps},
          {"updates", state.updates},
          {"steps", state.steps}};
}

// One of an earlier version counts no skipped steps.
std::optional<LossScaleState> read_loss_scale(const StateJson& state) {
  if (!state.contains("loss_scale")) return std::nullopt;
  const auto& json = state.at("loss_scale");
  const auto updates = json.at("updates").get<int64_t>();
  return LossScaleState{.scale = json.at("scale").get<double>(),
                        .good_steps = json.at("good_steps").get<int64_t>(),
                        .updates = updates,
                        .steps = json.contains("steps") ? json.at("steps").get<int64_t>() : updates};
}

// The fields of the state. All others are dropped while they are read, however large or deep they are.
StateJson read_fields(const std::string& text) {
  bool own = false;  // the field being read is one of them
  const auto only_own = [&own](int depth, StateJson::parse_event_t event, StateJson& value) {
    if (event == StateJson::parse_event_t::key && depth == 1) {
      own = value == "steps" || value == "split" || value == "lr" || value == "loss_scale";
    }
    return depth == 0 || (own && depth <= 2);
  };
  return StateJson::parse(text, only_own);
}

}  // namespace

Checkpoint to_checkpoint(TrainState state) {
  Checkpoint checkpoint;
  StateJson json{{"steps", state.steps}, {"split", state.split}, {"lr", to_json(state.lr)}};
  if (state.loss_scale) json["loss_scale"] = to_json(*state.loss_scale);
  checkpoint.texts[kStateFile] = json.dump(2) + "\n";
  checkpoint.tensors[kModelFile] = {.tensors = std::move(state.model), .metadata = {}};
  checkpoint.tensors[kOptimizerFile] = {.tensors = std::move(state.optimizer), .metadata = {}};
  if (!state.average.empty()) {
    checkpoint.tensors[kAverageFile] = {.tensors = std::move(state.average), .metadata = {}};
  }
  checkpoint.tensors[kReplicasFile] = {.tensors = replica_tensors(std::move(state.replicas)), .metadata = {}};
  for (const auto& [name, file] : checkpoint.tensors) check_can_save(file);
  return checkpoint;
}

TrainState read_train_state(Checkpoint checkpoint) {
  TrainState state;
  const auto text = checkpoint.texts.find(kStateFile);
  if (text == checkpoint.texts.end()) not_a_state(fmt::format("it has no {}", kStateFile));
  try {
    const auto json = read_fields(text->second);
    state.steps = json.at("steps").get<int64_t>();
    state.split = json.at("split").get<std::vector<double>>();
    state.lr = read_lr(json);
    state.loss_scale = read_loss_scale(json);
  } catch (const StateJson::exception& error) {
    not_a_state(fmt::format("{}: {}", kStateFile, error.what()));
  }
  if (state.steps < 0) not_a_state(fmt::format("{} has {} steps", kStateFile, state.steps));
  state.model = take_tensors(checkpoint, kModelFile);
  state.optimizer = take_tensors(checkpoint, kOptimizerFile);
  if (checkpoint.tensors.contains(kAverageFile)) state.average = take_tensors(checkpoint, kAverageFile);
  for (auto& tensor : take_tensors(checkpoint, kReplicasFile)) {
    read_replica_tensor(std::move(tensor), state.replicas);
  }
  return state;
}

}  // namespace lockstep
