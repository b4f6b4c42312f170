#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include <lockstep/models/program/eval_form.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/parts.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

using program::InputKind;
using program::ModuleTensor;

// Weights in their order, tied ones once; then buffers that are not persistent, which both graphs share by
// name.
void add_tensors(Program::Parts& parts) {
  std::map<std::string, size_t> by_record;
  for (const auto& weight : parts.file.weights) {
    const auto [place, is_new] = by_record.emplace(weight.record, parts.tensors.size());
    if (is_new) parts.tensors.push_back({.stored = weight});
    parts.places.emplace(weight.name, place->second);
  }
  for (const char* name : {"model", "eval"}) {
    const auto graph = parts.file.graphs.find(name);
    if (graph == parts.file.graphs.end()) continue;
    for (const auto& input : graph->second.inputs) {
      if (input.kind != InputKind::kPassingBuffer || parts.places.contains(input.name)) continue;
      const auto& constants = parts.file.constants.at(name);
      const auto stored = std::ranges::find(constants, input.name, &program::StoredTensor::name);
      if (stored == constants.end())
        throw program::FormatError(fmt::format("has no buffer '{}'", input.name));
      parts.places.emplace(input.name, parts.tensors.size());
      parts.tensors.push_back({.stored = *stored, .persistent = false});
    }
  }
}

int64_t numbers_in(const program::TensorMeta& meta) {
  int64_t count = 1;
  for (const auto& size : meta.sizes) count *= size.number;
  return count;
}

// The first parameter's, else the first buffer's.
torch::ScalarType float_type_of(const std::vector<ModuleTensor>& tensors) {
  for (const bool parameter : {true, false}) {
    for (const auto& tensor : tensors) {
      const auto type = program::scalar_type(tensor.stored.meta.dtype);
      if (tensor.stored.is_parameter == parameter && torch::isFloatingType(type)) return type;
    }
  }
  return torch::kFloat32;
}

std::shared_ptr<Program::Parts> parts_of(program::ProgramFile file, std::string name) {
  auto parts = std::make_shared<Program::Parts>();
  parts->name = std::move(name);
  parts->file = std::move(file);
  add_tensors(*parts);
  parts->float_type = float_type_of(parts->tensors);
  for (const auto& tensor : parts->tensors) {
    if (tensor.stored.is_parameter) parts->parameter_count += numbers_in(tensor.stored.meta);
  }
  parts->training = bind_graph(parts->file, "model", parts->float_type, parts->places);
  if (parts->file.graphs.contains("eval")) {
    parts->own_evaluation = bind_graph(parts->file, "eval", parts->float_type, parts->places);
  }
  for (const auto& input : parts->training.inputs) parts->inputs.push_back(tensor_of(input));
  return parts;
}

}  // namespace

Program::Tensor program::tensor_of(const UserInput& input) {
  Program::Tensor tensor{.name = input.name, .dtype = input.dtype};
  for (const auto& size : input.sizes) tensor.sizes.push_back(size.number);
  return tensor;
}

std::string program::text_of(const Program::Tensor& tensor) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.sizes) sizes.push_back(size < 0 ? "any" : std::to_string(size));
  return fmt::format("{} ({})", toString(tensor.dtype), fmt::join(sizes, ", "));
}

std::shared_ptr<const Program> read_program(const std::filesystem::path& path) {
  const auto name = fmt::format("program {}", in_quotes(path.native()));
  auto file = program::read_program_file(path);
  try {
    return std::make_shared<const Program>(parts_of(std::move(file), name));
  } catch (const program::FormatError& error) {
    throw WeightsError(fmt::format("{} {}", name, error.what()), error.hint());
  }
}

Program::Program(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

const std::filesystem::path& Program::path() const { return parts_->file.archive->path(); }
const std::string& Program::digest() const { return parts_->file.digest; }
const std::string& Program::torch_version() const { return parts_->file.graphs.at("model").torch_version; }
const std::vector<Program::Tensor>& Program::inputs() const { return parts_->inputs; }
const std::vector<Program::Tensor>& Program::outputs() const { return parts_->training.outputs; }
int64_t Program::parameter_count() const { return parts_->parameter_count; }
std::map<std::string, int64_t> Program::operations() const { return parts_->training.resolved.operations; }
bool Program::has_batch_norm() const { return !parts_->training.resolved.norms.empty(); }
int64_t Program::fused_batch_norms() const { return parts_->training.resolved.fused_norms; }
bool Program::random() const { return parts_->training.resolved.random; }
bool Program::writes_buffers() const { return parts_->training.resolved.writes_buffers; }
bool Program::captures() const { return parts_->training.resolved.captures; }
bool Program::has_eval_graph() const { return parts_->evaluation() != nullptr; }

std::vector<std::string> Program::unmatched_norms() const {
  std::vector<std::string> places;
  for (const auto& norm : parts_->training.resolved.norms) {
    if (norm.averages && !norm.matched) places.push_back(norm.place.empty() ? norm.module : norm.place);
  }
  return places;
}

std::string to_string(const Program::Rows& rows) {
  const auto [least, most] = std::pair(rows.least, rows.most);
  if (least > most || least == INT64_MAX) return "no number of rows";
  if (most == INT64_MAX) {
    return least <= 1 ? "any number of rows" : fmt::format("at least {}", counted(least, "row"));
  }
  if (least == most) return fmt::format("exactly {}", counted(most, "row"));
  return fmt::format("{} to {} rows", with_commas(least), with_commas(most));
}

Program::EvalForm Program::eval_form() const {
  auto form = program::eval_form_of(parts_->file.graphs.at("model").graph);
  const bool only = !parts_->own_evaluation && !parts_->training.resolved.depends_on_mode;
  form.whole = only && form.batch_norms + form.dropouts > 0;
  return form;
}

Program::Rows Program::rows(bool training, bool whole_batch_norms) const {
  const auto* graph = training ? &parts_->training : parts_->evaluation();
  if (!graph) graph = &parts_->training;
  return training && whole_batch_norms ? graph->rows_of_whole_batch : graph->rows;
}

}  // namespace lockstep
