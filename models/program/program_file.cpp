#include <lockstep/models/program/program_file.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <lockstep/models/program/exported_graph.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/models/program/row_reports.h>
#include <lockstep/models/program/stored_tensors.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

constexpr std::string_view kModel = "model", kEval = "eval";
constexpr std::string_view kGraphs = "models/", kJson = ".json";
constexpr const char* kRowReports = "extra/lockstep.json";

void check_text(const Archive& archive, const char* record, std::string_view expected, const char* hint) {
  const auto text = archive.has(record) ? archive.text(record) : "";
  if (text == expected) return;
  throw FormatError(archive.has(record) ? fmt::format("has the {} {} where {} is expected", record,
                                                      in_quotes(text), in_quotes(expected))
                                        : fmt::format("has no record '{}'", record),
                    hint);
}

void check_format(const Archive& archive) {
  if (archive.has("data.pkl") || archive.has("constants.pkl")) {
    throw FormatError("was written by torch.save() or torch.jit.save(), not by torch.export",
                      "export the module with scripts/export_program.py");
  }
  check_text(archive, "archive_format", "pt2", "export it with torch 2.12 to 2.15");
  check_text(archive, "archive_version", "0", "export it with torch 2.12 to 2.15");
  check_text(archive, "byteorder", "little", "export it on a little-endian machine");
}

// Checks each record's CRC-32. Parts that lockstep does not know are refused: they could hold weights, which
// would then stay as they are.
void check_records(const Archive& archive) {
  constexpr std::array<std::string_view, 9> kKnown{
      "models/",        "data/weights/",   "data/constants/", "data/sample_inputs/", "extra/", ".data/",
      "archive_format", "archive_version", "byteorder"};
  for (const auto& record : archive.records()) {
    const auto known = [&](std::string_view begin) { return record.name.starts_with(begin); };
    archive.bytes(record.name);
    if (std::ranges::any_of(kKnown, known) || record.name == "version") continue;
    throw FormatError(fmt::format("has a record {}, which lockstep does not know", in_quotes(record.name)),
                      "save the program alone: torch.export.save(program, path)");
  }
}

std::vector<std::string> graph_names(const Archive& archive) {
  std::vector<std::string> names;
  for (const auto& record : archive.records()) {
    if (!record.name.starts_with(kGraphs) || !record.name.ends_with(kJson)) continue;
    const auto name = record.name.substr(kGraphs.size(), record.name.size() - kGraphs.size() - kJson.size());
    names.push_back(name);
  }
  if (names.empty()) {
    throw FormatError("has no graph 'model'",
                      "export it with scripts/export_program.py or torch.export.save()");
  }
  const auto unknown =
      std::ranges::find_if(names, [](const auto& name) { return name != kModel && name != kEval; });
  if (unknown != names.end() || std::ranges::find(names, kModel) == names.end()) {
    throw FormatError(fmt::format("has the graphs '{}' where 'model' and perhaps 'eval' are expected",
                                  printable(fmt::format("{}", fmt::join(names, "', '")))),
                      "export it with scripts/export_program.py or torch.export.save()");
  }
  return names;
}

// Throws unless the graph's weights and constants are in the file, with the dtype and sizes that it expects.
void check_inputs(const ExportedGraph& exported, const std::vector<StoredTensor>& weights,
                  const std::vector<StoredTensor>& constants) {
  std::map<std::string_view, const StoredTensor*> of_weights, of_constants;
  for (const auto& weight : weights) of_weights.emplace(weight.name, &weight);
  for (const auto& constant : constants) of_constants.emplace(constant.name, &constant);
  for (const auto& input : exported.inputs) {
    if (input.kind == InputKind::kUser || input.kind == InputKind::kFixed) continue;
    const bool weight = input.kind == InputKind::kParameter || input.kind == InputKind::kBuffer;
    const auto& tensors = weight ? of_weights : of_constants;
    const auto found = tensors.find(input.name);
    if (found == tensors.end()) {
      throw FormatError(fmt::format("has no {} {}", weight ? "weight" : "constant", in_quotes(input.name)));
    }
    const auto& expected = exported.graph.tensors.at(input.value);
    const auto& stored = *found->second;
    if (stored.meta.dtype != expected.dtype || stored.meta.sizes != expected.sizes ||
        (weight && stored.is_parameter != (input.kind == InputKind::kParameter))) {
      throw FormatError(fmt::format("has a tensor {} that its graph takes with another dtype, sizes or kind",
                                    in_quotes(input.name)));
    }
  }
}

bool is_same(const Archive& archive, const StoredTensor& weight, const StoredTensor& copy) {
  const auto &one = weight.meta, &other = copy.meta;
  if (one.dtype != other.dtype || one.sizes != other.sizes || one.strides != other.strides) return false;
  const auto bytes = archive.record(weight.record).bytes, others = archive.record(copy.record).bytes;
  return one.storage_offset == other.storage_offset && bytes.size() == others.size() &&
         std::memcmp(bytes.data(), others.data(), bytes.size()) == 0;
}

// The other graph must be of the same module: it computes with the weights that training changes.
void check_copies(ProgramFile& file, const std::string& graph, const std::vector<StoredTensor>& copies) {
  std::map<std::string_view, const StoredTensor*> of_weights;
  for (const auto& weight : file.weights) of_weights.emplace(weight.name, &weight);
  if (copies.size() != file.weights.size()) {
    throw FormatError(fmt::format("has {} weights of graph 'model' and {} of '{}'", file.weights.size(),
                                  copies.size(), graph));
  }
  std::map<std::string_view, std::string_view> originals;  // record of a copy -> of the weight
  std::map<std::string_view, std::string_view> own;        // record -> the weight of graph 'model'
  for (const auto& weight : file.weights) own.emplace(weight.record, weight.name);
  for (const auto& copy : copies) {
    const auto found = of_weights.find(copy.name);
    if (found == of_weights.end()) {
      throw FormatError(fmt::format("has a weight {} of graph '{}' only", in_quotes(copy.name), graph));
    }
    const auto& weight = *found->second;
    if (!is_same(*file.archive, weight, copy)) {
      throw FormatError(fmt::format("has two weights {} that differ, of the graphs 'model' and '{}'",
                                    in_quotes(copy.name), graph),
                        "export both graphs of one module, with nothing between the two that changes it");
    }
    if (originals.emplace(copy.record, weight.record).first->second != weight.record) {
      throw FormatError(fmt::format("has a weight {} that is tied to another in graph '{}' only",
                                    in_quotes(copy.name), graph));
    }
    if (copy.record == weight.record) continue;
    if (const auto other = own.find(copy.record); other != own.end()) {  // of equal bytes, until it trains
      throw FormatError(fmt::format("has the weight {} of graph '{}' in the record of {}",
                                    in_quotes(copy.name), graph, in_quotes(std::string(other->second))));
    }
    file.weight_copies.emplace(copy.record, copy.name);
  }
}

// Buffers that are not persistent are one tensor for both graphs, as weights are.
void check_passing_buffers(const ProgramFile& file, const std::string& graph) {
  const auto& own = file.constants.at(std::string(kModel));
  const auto& copies = file.constants.at(graph);
  for (const auto& input : file.graphs.at(graph).inputs) {
    if (input.kind != InputKind::kPassingBuffer) continue;
    const auto weight = std::ranges::find(own, input.name, &StoredTensor::name);
    const auto copy = std::ranges::find(copies, input.name, &StoredTensor::name);
    if (weight == own.end() || copy == copies.end() || is_same(*file.archive, *weight, *copy)) continue;
    throw FormatError(fmt::format("has two buffers {} that differ, of the graphs 'model' and '{}'",
                                  in_quotes(input.name), graph),
                      "export both graphs of one module, with nothing between the two that changes it");
  }
}

void check_same_inputs(const ProgramFile& file, const std::string& graph) {
  const auto users = [](const ExportedGraph& exported) {
    std::vector<std::string> names;
    for (const auto& input : exported.inputs) {
      if (input.kind == InputKind::kUser) names.push_back(input.name);
    }
    return names;
  };
  const auto expected = users(file.graphs.at(std::string(kModel))), found = users(file.graphs.at(graph));
  if (expected == found) return;
  throw FormatError(printable(fmt::format("has the inputs {} of graph 'model' and {} of '{}'",
                                          fmt::join(expected, ", "), fmt::join(found, ", "), graph)));
}

void read_graphs(ProgramFile& file) {
  const auto& archive = *file.archive;
  auto names = graph_names(archive);
  std::ranges::sort(names, std::greater());  // "model" first
  for (const auto& name : names) {
    try {
      file.graphs[name] = read_exported_graph(archive.text(fmt::format("{}{}{}", kGraphs, name, kJson)));
    } catch (const FormatError& error) {
      if (name == kModel) throw;
      throw FormatError(fmt::format("{} (graph '{}')", error.what(), name), error.hint());
    }
    auto weights = read_weights(archive, name);
    file.constants[name] = read_constants(archive, name);
    check_inputs(file.graphs[name], weights, file.constants[name]);
    if (name == kModel) {
      file.weights = std::move(weights);
      continue;
    }
    check_copies(file, name, weights);
    check_passing_buffers(file, name);
    check_same_inputs(file, name);
  }
}

std::string digest_of(const Archive& archive) {
  Sha256 hash;
  hash.update(archive.whole_file());
  return hash.hex();
}

}  // namespace

ProgramFile read_program_file(const std::filesystem::path& path) {
  ProgramFile file;
  file.archive = std::make_shared<const Archive>(path);
  try {
    check_format(*file.archive);
    check_records(*file.archive);
    read_graphs(file);
    if (file.archive->has(kRowReports)) file.row_reports = read_row_reports(file.archive->text(kRowReports));
  } catch (const FormatError& error) {
    throw WeightsError(fmt::format("program {} {}", in_quotes(path.native()), error.what()), error.hint());
  }
  file.digest = digest_of(*file.archive);
  return file;
}

}  // namespace lockstep::program
