#include <lockstep/models/program/batch_norm_uses.h>

#include <array>
#include <unordered_map>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/input_memory.h>
#include <lockstep/models/program/ready_arguments.h>

namespace lockstep::program {
namespace {

// A module's tensors have its name before theirs. One without tensors is where the operation stands.
void find_module(const Node& node, const ReadyNode& ready, const SourceOf& source_of, BatchNormUse& norm) {
  constexpr std::array<const char*, 5> kNames = {"", "weight", "bias", "running_mean", "running_var"};
  norm.module = node.module;
  norm.matched = true;
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (!is_value(ready.arguments[i])) continue;
    norm.module = module_of(source_of(ready.arguments[i]));
    break;
  }
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (!is_value(ready.arguments[i])) continue;
    norm.matched = norm.matched && source_of(ready.arguments[i]) == norm.module + "." + kNames[i];
  }
  norm.matched = norm.matched && !norm.module.empty();
}

BatchNormUse use_of(const Node& node, const ReadyNode& ready, const TensorMeta* meta,
                    const SourceOf& source_of) {
  const auto& momentum = ready.arguments[6].constant;
  const auto& eps = ready.arguments[7].constant;
  if (!momentum.isDouble() || !eps.isDouble())
    throw FormatError("computes the momentum or eps of a batch norm");
  BatchNormUse norm{.place = ready.line,
                    .dimensions = meta ? static_cast<int64_t>(meta->sizes.size()) : 0,
                    .momentum = momentum.toDouble(),
                    .eps = eps.toDouble(),
                    .affine = is_value(ready.arguments[1]),
                    .averages = is_value(ready.arguments[3])};
  find_module(node, ready, source_of, norm);
  return norm;
}

}  // namespace

std::string module_of(const std::string& tensor) {
  const auto dot = tensor.rfind('.');
  return dot == tensor.npos ? std::string() : tensor.substr(0, dot);
}

void BatchNormUses::note(const Node& node, ReadyNode& ready, const TensorMeta* meta,
                         const SourceOf& source_of, const std::shared_ptr<ReadyGraph>& graph, size_t place) {
  if (ready.name == "aten::add_") {
    const auto name = source_of(ready.arguments[0]);
    if (is_batch_counter(name)) counters_.push_back({graph, place, module_of(name)});
    return;
  }
  if (ready.name != "aten::batch_norm" || is_constant(ready.arguments[5], false)) return;
  ready.norm = static_cast<int>(norms_.size());
  norms_.push_back(use_of(node, ready, meta, source_of));
}

void BatchNormUses::join_counters() {
  std::unordered_map<std::string, int> by_module;
  for (size_t i = 0; i < norms_.size(); ++i) by_module.emplace(norms_[i].module, static_cast<int>(i));
  for (const auto& counter : counters_) {
    const auto norm = by_module.find(counter.module);
    if (norm == by_module.end()) continue;
    counter.graph->nodes[counter.node].counter = norm->second;
    norms_[static_cast<size_t>(norm->second)].counts = true;
  }
}

}  // namespace lockstep::program
