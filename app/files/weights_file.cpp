#include <lockstep/app/files/weights_file.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include <lockstep/app/files/json_file.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/models/factory.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelKey = "model";
constexpr const char* kFactsKey = "network";

std::optional<NetworkFacts> facts_in(const TensorFile& file) {
  const auto found = file.metadata.find(kFactsKey);
  if (found == file.metadata.end()) return std::nullopt;
  return read_facts(nlohmann::ordered_json::parse(found->second, nullptr, /*allow_exceptions=*/false));
}

// Returns "w-1.safetensors" for "w.safetensors", or the next free number.
fs::path free_name(const fs::path& folder, const fs::path& name) {
  std::error_code ignored;
  for (int n = 1;; ++n) {
    auto path = folder / fmt::format("{}-{}{}", name.stem().native(), n, name.extension().native());
    if (!fs::exists(path, ignored)) return path;
  }
}

// Returns where the weights were saved; empty if nowhere.
std::optional<std::string> save_elsewhere(const TensorFile& file, const fs::path& path) {
  std::error_code ignored;
  for (const auto& folder : {path.parent_path(), fs::temp_directory_path(ignored)}) {
    const auto other = free_name(folder, path.filename());
    try {
      save_safetensors(other, file, /*overwrite=*/false);
      return other.native();
    } catch (const OutputError&) {
      continue;
    }
  }
  return std::nullopt;
}

TensorFile load_file(const std::string& path) {
  std::error_code ignored;
  // Here, since the library's hint is about damaged files.
  if (fs::status(path, ignored).type() == fs::file_type::not_found) {
    throw WeightsError(fmt::format("cannot read {}: there is no such file", in_quotes(path)),
                       "name a file that 'lockstep train --save FILE' has written");
  }
  return load_safetensors(path);
}

}  // namespace

void save_weights(std::vector<NamedTensor> weights, const std::string& model, const std::string& path,
                  bool overwrite, const std::optional<NetworkFacts>& facts) {
  TensorFile file = {.tensors = std::move(weights),
                     .metadata = {{kModelKey, model}, {"lockstep", LOCKSTEP_VERSION}}};
  if (facts) file.metadata.emplace(kFactsKey, json_line(to_json(*facts)));
  try {
    save_safetensors(path, file, overwrite);
  } catch (const OutputError& error) {
    const auto other = save_elsewhere(file, path);
    if (!other) throw;
    throw OutputError(fmt::format("{}; the weights are in '{}' instead", error.message(), *other),
                      fmt::format("move them: mv '{}' '{}'", *other, path));
  }
}

WeightsFile load_weights(const std::string& path, const std::optional<std::string>& model) {
  auto file = load_file(path);
  const auto named = file.metadata.find(kModelKey);
  auto facts = facts_in(file);
  auto weights =
      as_weights_of(path, std::move(file.tensors),
                    named == file.metadata.end() ? std::nullopt : std::optional(named->second), model);
  weights.facts = std::move(facts);
  return weights;
}

WeightsFile load_weights_of_program(const std::string& path) {
  auto file = load_file(path);
  const auto named = file.metadata.find(kModelKey);
  if (named != file.metadata.end() && named->second != kProgramModel) {
    throw WeightsError(fmt::format("{} holds weights of {}, not of an exported program", path, named->second),
                       "leave --program out");
  }
  auto facts = facts_in(file);
  return {.model = kProgramModel, .weights = std::move(file.tensors), .facts = std::move(facts)};
}

WeightsFile load_any_weights(const std::string& path) {
  auto file = load_file(path);
  auto facts = facts_in(file);
  return {.model = {}, .weights = std::move(file.tensors), .facts = std::move(facts)};
}

WeightsFile as_weights_of(const std::string& path, std::vector<NamedTensor> weights,
                          const std::optional<std::string>& named, const std::optional<std::string>& model) {
  if (!named) {
    if (!model) {
      throw WeightsError(fmt::format("{} does not name the model of its weights", path), "name it: --model");
    }
    return {.model = *model, .weights = std::move(weights)};
  }
  if (model && *model != *named) {
    throw WeightsError(fmt::format("{} holds weights of {}, --model is {}", path, *named, *model),
                       "leave --model out, or name the file of the other model");
  }
  if (*named == kProgramModel) {
    throw WeightsError(fmt::format("{} holds weights of an exported program, which is in another file", path),
                       "name the program: --program FILE");
  }
  const auto known = model_names();
  if (std::find(known.begin(), known.end(), *named) == known.end()) {
    throw WeightsError(fmt::format("{} holds weights of '{}', which is no model of lockstep", path, *named),
                       fmt::format("known models: {}", fmt::join(known, ", ")));
  }
  return {.model = *named, .weights = std::move(weights)};
}

}  // namespace lockstep
