#include <lockstep/app/commands/named_weights.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/models/load_weights.h>
#include <lockstep/models/program.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// A test has the loss of its run. Files of weights know none: they are tested with the plain one.
ClassificationOptions trained_loss(const nlohmann::ordered_json& planned) {
  ClassificationOptions loss;
  if (const auto smoothing = planned.find("label_smoothing");
      smoothing != planned.end() && smoothing->is_number()) {
    loss.label_smoothing = smoothing->get<double>();
  }
  if (const auto weights = planned.find("class_weights"); weights != planned.end() && weights->is_array()) {
    loss.class_weights = weights->get<std::vector<double>>();
  }
  return loss;
}

// Weights of the program's own file are in its modules.
void load_into(torch::nn::Module& module, const NamedWeights& named) {
  if (!named.pythons) return load_weights_into(module, named.file.weights);
  if (!named.file.weights.empty()) dynamic_cast<ProgramModule&>(module).load_state_dict(named.file.weights);
}

// An exported program's weights: those of its file, or those of a safetensors file.
NamedWeights program_weights(const WeightsOptions& options) {
  if (options.model) {
    throw UsageError("--program cannot be combined with --model: it is the model", "leave one of them out");
  }
  RunProgram program{open_program(*options.program), options.loss.value_or(LossChoice())};
  WeightsFile file{.model = kProgramModel, .weights = {}};
  if (options.weights) file = load_weights_of_program(*options.weights);
  auto facts = file.facts;
  return {.path = options.weights.value_or(*options.program),
          .file = std::move(file),
          .program = std::move(program),
          .pythons = true,
          .facts = std::move(facts)};
}

}  // namespace

NamedWeights named_weights(const WeightsOptions& options) {
  if (options.program && !options.run) return program_weights(options);
  if (options.weights.has_value() == options.run.has_value()) {
    throw UsageError(options.run ? "two names of weights are given" : "no weights are named",
                     "give the folder of a run, --weights FILE or --program FILE");
  }
  if (options.loss && !options.run) {
    throw UsageError("--loss is a setting of --program: lockstep's models have one loss",
                     "leave --loss out, or name the program: --program FILE");
  }
  if (options.weights) {
    auto file = load_weights(*options.weights, options.model);
    auto facts = file.facts;
    return {.path = *options.weights, .file = std::move(file), .facts = std::move(facts)};
  }
  auto found = open_checkpoint(*options.run, warn);
  const auto& planned = found.state.plan;
  const auto named = planned.contains("model") && planned.at("model").is_string()
                         ? std::optional(planned.at("model").get<std::string>())
                         : std::nullopt;
  const auto path = found.path.native();
  const auto facts = planned.contains("network") ? read_facts(planned.at("network")) : std::nullopt;
  const auto trained_on = run_data(found);
  if (auto program = run_program(found, options.program); program.program) {
    if (options.loss) program.loss = *options.loss;
    return {.path = path,
            .file = {.model = kProgramModel, .weights = evaluated_weights(std::move(found.state.trainer))},
            .run = trained_on,
            .program = std::move(program),
            .loss = trained_loss(planned),
            .facts = facts};
  }
  const auto loss = trained_loss(planned);
  return {
      .path = path,
      .file = as_weights_of(path, evaluated_weights(std::move(found.state.trainer)), named, options.model),
      .run = trained_on,
      .loss = loss,
      .facts = facts};
}

std::vector<Model> models_with(const NamedWeights& named, const ModelFactory& factory, Precision precision,
                               std::span<const torch::Device> devices) {
  const auto& [path, file] = std::tie(named.path, named.file);
  std::vector<Model> models;
  for (const auto device : devices) {
    models.push_back(factory());
    try {
      load_into(*models.back().module, named);
    } catch (const WeightsError& error) {
      throw WeightsError(fmt::format("{} does not fit {}: {}", path, file.model, error.message()),
                         error.hint_text());
    }
    move_module(*models.back().module, device, dtype_of(precision));
  }
  return models;
}

}  // namespace lockstep
