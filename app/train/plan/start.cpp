#include <lockstep/app/train/plan/start.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/train/plan/pixel_changes.h>
#include <lockstep/data/weights_hash.h>
#include <lockstep/models/program.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/split_text.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr size_t kMostNames = 4;  // of each kind in a text

// A program's tensors have Python's names, tied ones each of theirs.
std::vector<NamedTensor> places_of(torch::nn::Module& module) {
  if (auto* program = dynamic_cast<ProgramModule*>(&module)) return program->state_dict();
  std::vector<NamedTensor> places;
  for (const auto& registered : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : registered) places.push_back({item.key(), item.value()});
  }
  return places;
}

std::string some_of(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kMostNames);
  std::vector<std::string> texts;
  for (size_t i = 0; i < shown; ++i) texts.push_back(printable(names[i]));
  if (names.size() > shown) texts.push_back(fmt::format("and {} more", names.size() - shown));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string sizes_text(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

// Copies those that have a place.
void copy_into(torch::nn::Module& module, const std::vector<NamedTensor>& tensors) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> places;
  for (const auto& [name, tensor] : places_of(module)) places.emplace(name, tensor);
  for (const auto& [name, tensor] : tensors) places.at(name).detach().copy_(tensor);
}

[[noreturn]] void refuse_unrelated(const StartWeights& start, const std::vector<NamedTensor>& places) {
  const auto first = start.unused.empty() ? start.other_shape : start.unused;
  throw WeightsError(
      fmt::format("{} has no tensor with the name and shape of one of the model: it has {}, the model {}",
                  in_quotes(start.file), first.empty() ? "none" : some_of(first),
                  places.empty() ? "none" : places.front().name),
      "names are those of Python's state_dict(), without what a wrapper such as DistributedDataParallel puts "
      "before them");
}

}  // namespace

StartWeights read_start(const std::string& file, torch::nn::Module& module) {
  StartWeights start{.file = file, .sha256 = {}};
  const auto places = places_of(module);
  std::map<std::string, torch::Tensor> by_name;
  for (const auto& [name, tensor] : places) by_name.emplace(name, tensor);
  std::set<std::string> seen;
  auto read = load_any_weights(file);
  start.facts = std::move(read.facts);
  for (auto& given : read.weights) {
    const auto place = by_name.find(given.name);
    if (place == by_name.end()) {
      start.unused.push_back(given.name);
      continue;
    }
    seen.insert(given.name);
    const auto& own = place->second;
    if (own.sizes() != given.tensor.sizes()) {
      start.other_shape.push_back(
          fmt::format("{} {}, in the file {}", given.name, sizes_text(own), sizes_text(given.tensor)));
    } else if (!torch::canCast(given.tensor.scalar_type(), own.scalar_type())) {
      start.other_shape.push_back(fmt::format("{} of {}, in the file of {}", given.name,
                                              toString(own.scalar_type()),
                                              toString(given.tensor.scalar_type())));
    } else {
      start.tensors.push_back(std::move(given));
    }
  }
  for (const auto& place : places) {
    if (!seen.contains(place.name)) start.missing.push_back(place.name);
  }
  if (start.tensors.empty()) refuse_unrelated(start, places);
  start.sha256 = weights_sha256(start.tensors);
  return start;
}

std::string start_text(const StartWeights& start) {
  const auto all = start.tensors.size() + start.other_shape.size() + start.missing.size();
  auto text = fmt::format("{} of {} tensors from {}", start.tensors.size(), all, printable(start.file));
  if (!start.other_shape.empty()) text += "; of another shape: " + some_of(start.other_shape);
  if (!start.missing.empty()) text += "; not in the file: " + some_of(start.missing);
  if (!start.unused.empty()) text += "; only in the file: " + some_of(start.unused);
  return text;
}

std::optional<std::string> pixels_notice(const StartWeights& start, const NetworkFacts& own) {
  const auto& facts = start.facts;
  if (!facts || (facts->mean == own.mean && facts->deviation == own.deviation)) return std::nullopt;
  const auto text = [](const NetworkFacts& of) {
    return normalize_text({.mean = of.mean, .deviation = of.deviation});
  };
  return fmt::format("the weights of {} have learnt from images with --normalize {}, this run has {}",
                     printable(start.file), text(*facts), text(own));
}

std::vector<std::string> frozen_names(const std::string& patterns, torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  std::set<std::string> matched;
  for (const auto part : split_text(patterns, ',')) {
    const std::string pattern(part);
    bool any = false;
    for (const auto& name : names) {
      if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      any = true;
      matched.insert(name);
    }
    if (any) continue;
    const auto near = nearest(pattern, names);
    throw UsageError(fmt::format("--freeze {}: no parameter has such a name", in_quotes(pattern)),
                     near ? fmt::format("did you mean {}?", in_quotes(*near))
                          : fmt::format("the parameters are {}", some_of(names)));
  }
  if (matched.size() == names.size()) {
    throw UsageError(fmt::format("--freeze {} leaves no parameter to train: it matches all {}",
                                 in_quotes(patterns), names.size()),
                     "leave some out");
  }
  std::vector<std::string> frozen;  // in the model's order
  std::ranges::copy_if(names, std::back_inserter(frozen),
                       [&](const std::string& name) { return matched.contains(name); });
  return frozen;
}

ModelFactory with_start(ModelFactory factory, std::vector<NamedTensor> tensors,
                        std::vector<std::string> frozen) {
  return [factory = std::move(factory), tensors = std::move(tensors), frozen = std::move(frozen)] {
    auto model = factory();
    copy_into(*model.module, tensors);
    auto params = model.module->named_parameters();
    for (const auto& name : frozen) params[name].requires_grad_(false);
    return model;
  };
}

}  // namespace lockstep
