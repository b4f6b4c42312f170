#include <lockstep/app/checkpoint/contents.h>

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kReplicasFile = "replicas.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr std::string_view kBuffers = "buffers.";
constexpr size_t kMostSavedReplicas = 1 << 16;
constexpr JsonLimits kStateLimits = {.numbers = 250'000, .others = 10'000};  // a number per epoch and replica

[[noreturn]] void not_a_run(const std::string& why) {
  throw WeightsError(fmt::format("this is no checkpoint of a training run: {}", why),
                     "name one that 'lockstep train --checkpoint-every' has written");
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
    not_a_run(fmt::format("{} has a tensor named '{}'", kReplicasFile, name));
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
    not_a_run(fmt::format("{} has a tensor named '{}'", kReplicasFile, name));
  }
}

std::vector<NamedTensor> take_tensors(Checkpoint& checkpoint, const char* name) {
  const auto file = checkpoint.tensors.find(name);
  if (file == checkpoint.tensors.end()) not_a_run(fmt::format("it has no {}", name));
  return std::move(file->second.tensors);
}

// Each epoch has a step, and each step has one place.
void check_place(const RunState& state) {
  const auto& [epoch, step] = std::pair(state.progress.epoch, state.progress.step);
  const auto steps = state.trainer.steps;
  if (steps < 0 || step < 0 || step > steps || epoch < 1 || epoch - 1 > steps) {
    not_a_run(fmt::format("{} has step {} of epoch {} after {} in all", kStateFile, step, epoch, steps));
  }
  for (const auto& [name, bytes] : state.file_bytes) {
    if (bytes < 0) not_a_run(fmt::format("{} has {} bytes of {}", kStateFile, bytes, name));
  }
}

}  // namespace

Checkpoint to_checkpoint(RunState state) {
  Checkpoint checkpoint;
  const Json json{
      {"steps", state.trainer.steps},   {"split", state.trainer.split}, {"progress", to_json(state.progress)},
      {"file_bytes", state.file_bytes}, {"plan", state.plan},           {"environment", state.environment}};
  checkpoint.texts[kStateFile] = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  checkpoint.tensors[kModelFile] = {
      .tensors = std::move(state.trainer.model),
      .metadata = {{"model", state.plan.at("model").get<std::string>()}, {"lockstep", LOCKSTEP_VERSION}}};
  checkpoint.tensors[kOptimizerFile] = {.tensors = std::move(state.trainer.optimizer), .metadata = {}};
  checkpoint.tensors[kReplicasFile] = {.tensors = replica_tensors(std::move(state.trainer.replicas)),
                                       .metadata = {}};
  return checkpoint;
}

RunState read_state(Checkpoint checkpoint) {
  RunState state;
  const auto text = checkpoint.texts.find(kStateFile);
  if (text == checkpoint.texts.end()) not_a_run(fmt::format("it has no {}", kStateFile));
  try {
    auto json = parse_json(text->second, kStateLimits);
    state.trainer.steps = json.at("steps").get<int64_t>();
    state.trainer.split = json.at("split").get<std::vector<double>>();
    state.file_bytes = json.at("file_bytes").get<FileSizes>();
    state.plan = std::move(json.at("plan"));
    state.environment = std::move(json.at("environment"));
    state.progress = read_progress(json.at("progress"));
  } catch (const JsonError& error) {
    not_a_run(fmt::format("{} is {}", kStateFile, error.what()));
  } catch (const Json::exception& error) {
    not_a_run(fmt::format("{}: {}", kStateFile, error.what()));
  }
  check_place(state);
  state.trainer.model = take_tensors(checkpoint, kModelFile);
  state.trainer.optimizer = take_tensors(checkpoint, kOptimizerFile);
  for (auto& tensor : take_tensors(checkpoint, kReplicasFile)) {
    read_replica_tensor(std::move(tensor), state.trainer.replicas);
  }
  return state;
}

}  // namespace lockstep
