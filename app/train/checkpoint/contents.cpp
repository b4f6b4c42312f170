#include <lockstep/app/train/checkpoint/contents.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr JsonLimits kStateLimits = {.numbers = 250'000, .others = 10'000};  // a number per epoch and replica

[[noreturn]] void not_a_run(const std::string& why) {
  throw WeightsError(fmt::format("this is no checkpoint of a training run: {}", why),
                     "name one that 'lockstep train --checkpoint-every' has written");
}

[[noreturn]] void no_averages(const std::string& why) {
  throw WeightsError(fmt::format("the checkpoint's averages are not of its weights: {}", why),
                     "use another checkpoint of the run");
}

// "Float (3, 2)"
std::string shape_text(const torch::Tensor& tensor) {
  return fmt::format("{} ({})", torch::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

// A program that uses the library writes no plan.
bool has_plan(const Json& state) { return state.is_object() && state.contains("plan"); }

// Each epoch has a step, and each step has one place.
void check_place(const RunState& state) {
  const auto& [epoch, step] = std::pair(state.position.epoch, state.position.step);
  const auto steps = state.trainer.steps;
  if (step < 0 || step > steps || epoch < 1 || epoch - 1 > steps) {
    not_a_run(fmt::format("{} has step {} of epoch {} after {} in all", kStateFile, step, epoch, steps));
  }
  for (const auto& [name, bytes] : state.file_bytes) {
    if (bytes < 0) not_a_run(fmt::format("{} has {} bytes of {}", kStateFile, bytes, name));
  }
}

}  // namespace

Checkpoint to_checkpoint(RunState state) {
  auto checkpoint = to_checkpoint(std::move(state.trainer));
  auto json = Json::parse(checkpoint.texts.at(kStateFile));  // the trainer's fields
  json.update({{"progress", to_json(state.position)},
               {"file_bytes", state.file_bytes},
               {"plan", state.plan},
               {"environment", state.environment},
               {"config", state.config}});
  checkpoint.texts[kStateFile] = json_text(json);
  checkpoint.tensors[kModelFile].metadata = {{"model", state.plan.at("model").get<std::string>()},
                                             {"lockstep", LOCKSTEP_VERSION}};
  return checkpoint;
}

bool is_finite(const TrainState& state) {
  const auto finite = [](const NamedTensor& named) {
    return !named.tensor.is_floating_point() || torch::isfinite(named.tensor).all().item<bool>();
  };
  return std::ranges::all_of(state.model, finite) && std::ranges::all_of(state.optimizer, finite) &&
         std::ranges::all_of(state.average, finite);
}

std::vector<NamedTensor> evaluated_weights(TrainState state) {
  for (const auto& [name, average] : state.average) {
    const auto weight = std::ranges::find(state.model, name, &NamedTensor::name);
    if (weight == state.model.end()) {
      no_averages(fmt::format("there is one of {}, which the model does not have", in_quotes(name)));
    }
    if (weight->tensor.sizes() != average.sizes() || weight->tensor.dtype() != average.dtype()) {
      no_averages(fmt::format("that of {} is {}, the weight {}", in_quotes(name), shape_text(average),
                              shape_text(weight->tensor)));
    }
    weight->tensor = average;
  }
  return std::move(state.model);
}

bool is_of_program(const Checkpoint& checkpoint) {
  const auto text = checkpoint.texts.find(kStateFile);
  try {
    return text == checkpoint.texts.end() || !has_plan(parse_json(text->second, kStateLimits));
  } catch (const JsonError&) {
    return false;
  }
}

RunState read_state(Checkpoint checkpoint) {
  RunState state;
  const auto text = checkpoint.texts.find(kStateFile);
  if (text == checkpoint.texts.end()) not_a_run(fmt::format("it has no {}", kStateFile));
  try {
    auto json = parse_json(text->second, kStateLimits);
    if (!has_plan(json)) not_a_run(fmt::format("{} has no plan, so another program wrote it", kStateFile));
    state.trainer = read_train_state(std::move(checkpoint));
    state.file_bytes = json.at("file_bytes").get<FileSizes>();
    state.plan = std::move(json.at("plan"));
    state.environment = std::move(json.at("environment"));
    if (json.contains("config")) state.config = json.at("config").get<std::string>();
    state.position = read_position(json.at("progress"));
  } catch (const JsonError& error) {
    not_a_run(fmt::format("{} is {}", kStateFile, error.what()));
  } catch (const Json::exception& error) {
    not_a_run(fmt::format("{}: {}", kStateFile, error.what()));
  }
  check_place(state);
  return state;
}

}  // namespace lockstep
