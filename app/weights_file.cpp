#include <lockstep/app/weights_file.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/data/safetensors.h>
#include <lockstep/models/factory.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kModelKey = "model";

}  // namespace

void save_weights(std::vector<NamedTensor> weights, const std::string& model, const std::string& path,
                  bool overwrite) {
  save_safetensors(
      path, {.tensors = std::move(weights), .metadata = {{kModelKey, model}, {"lockstep", LOCKSTEP_VERSION}}},
      overwrite);
}

WeightsFile load_weights(const std::string& path, const std::optional<std::string>& model) {
  auto file = load_safetensors(path);
  const auto named = file.metadata.find(kModelKey);
  if (named == file.metadata.end()) {
    if (!model) {
      throw WeightsError(fmt::format("{} does not say which model its weights are for", path),
                         "name the model: --model");
    }
    return {.model = *model, .weights = std::move(file.tensors)};
  }
  if (model && *model != named->second) {
    throw WeightsError(fmt::format("{} holds weights of {}, --model is {}", path, named->second, *model),
                       "leave --model out, or name the file of the other model");
  }
  const auto known = model_names();
  if (std::find(known.begin(), known.end(), named->second) == known.end()) {
    throw WeightsError(
        fmt::format("{} holds weights of '{}', a model that lockstep does not have", path, named->second),
        fmt::format("known models: {}", fmt::join(known, ", ")));
  }
  return {.model = named->second, .weights = std::move(file.tensors)};
}

}  // namespace lockstep
