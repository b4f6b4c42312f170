#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include <lockstep/models/program/module_tree.h>
#include <lockstep/support/error.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/words_of.h>

namespace lockstep {

using program::InputSize;
using program::ProgramGraph;

struct ProgramModule::State {
  program::ModuleTree tree;
  std::array<std::vector<torch::Tensor>, 2>
      constants;                 // of the training graph, and the evaluation's; as they were used last
  std::vector<int64_t> symbols;  // sizes of this run
};

namespace {

std::string sizes_text(const torch::Tensor& tensor) {
  return fmt::format("{} ({})", toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

// Checks the inputs of one run, and notes the sizes that may differ.
class InputCheck {
 public:
  InputCheck(const Program::Parts& parts, const ProgramGraph& graph, bool whole_batch,
             std::vector<int64_t>& symbols)
      : parts_(parts), graph_(graph), whole_batch_(whole_batch), symbols_(symbols) {
    symbols_.assign(graph.symbols.size(), -1);
  }

  void check(const program::UserInput& input, const torch::Tensor& given) {
    const auto fits = [&](const InputSize& size, int64_t own) {
      return size.number < 0 || size.number == own;
    };
    const bool floating = torch::isFloatingType(input.dtype) && given.is_floating_point();
    const bool same = given.defined() && (floating || given.scalar_type() == input.dtype) &&
                      given.dim() == static_cast<int64_t>(input.sizes.size()) &&
                      std::ranges::equal(input.sizes, given.sizes(), fits);
    if (!same) {
      throw DataError(fmt::format("{} takes {} as '{}', the batch has {}", parts_.name,
                                  program::text_of(tensor_of(input)), input.name,
                                  given.defined() ? sizes_text(given) : "none"),
                      "give it what it was exported for, or export it with other examples");
    }
    for (size_t i = 0; i < input.sizes.size(); ++i) {
      if (input.sizes[i].symbol >= 0) note(input, i, given.size(static_cast<int64_t>(i)));
    }
  }

 private:
  void note(const program::UserInput& input, size_t dimension, int64_t size) {
    const auto symbol = input.sizes[dimension].symbol;
    auto& known = symbols_[static_cast<size_t>(symbol)];
    if (known < 0) {
      known = size;
      if (symbol == graph_.rows_symbol) return check_rows(size);
      const auto& range = graph_.symbols[static_cast<size_t>(symbol)];
      if (size >= range.least && size <= range.most) return;
      throw DataError(
          fmt::format("{} takes sizes of {} to {} in dimension {} of '{}', the batch has {}", parts_.name,
                      range.least,
                      range.most == std::numeric_limits<int64_t>::max() ? "any" : std::to_string(range.most),
                      dimension, input.name, size),
          "export it with an example of this size");
    }
    if (known == size) return;
    throw DataError(
        fmt::format(
            "{} takes the same size in dimension {} of '{}' as before in another place, the batch has "
            "{} and {}",
            parts_.name, dimension, input.name, known, size),
        "give it tensors whose sizes belong together");
  }

  void check_rows(int64_t rows) const {
    const auto& allowed = whole_batch_ ? graph_.rows_of_whole_batch : graph_.rows;
    if (rows == 0 ? allowed.empty : rows >= allowed.least && rows <= allowed.most) return;
    if (allowed.least == std::numeric_limits<int64_t>::max()) {
      throw DataError(fmt::format("{} computes something else than Python: {}", parts_.name, allowed.why),
                      "export it anew with scripts/export_program.py");
    }
    throw DataError(fmt::format("{} takes {}{} at once, and gets {}: {}", parts_.name, to_string(allowed),
                                rows == 0 ? " but 0" : "", rows, allowed.why),
                    "choose batches, replicas and micro-batches that give each replica so many");
  }

  const Program::Parts& parts_;
  const ProgramGraph& graph_;
  const bool whole_batch_;
  std::vector<int64_t>& symbols_;
};

// A number of a type that the module has been converted from follows it.
torch::ScalarType followed(torch::ScalarType type, torch::ScalarType program, torch::ScalarType module) {
  return type == program ? module : type;
}

}  // namespace

ProgramModule::ProgramModule(std::shared_ptr<const Program> program, Kernels kernels)
    : torch::nn::Module("ProgramModule"),
      program_(std::move(program)),
      kernels_(kernels),
      state_(std::make_unique<State>()) {
  const auto& parts = program_->parts();
  try {
    state_->tree = program::grow_modules(*this, parts);
  } catch (const c10::Error& error) {  // names that no module can have
    throw WeightsError(fmt::format("{} has parameters and modules that cannot be registered: {}", parts.name,
                                   words_of(error)));
  }
}

ProgramModule::~ProgramModule() = default;

torch::Tensor ProgramModule::forward(const torch::Tensor& input) { return run({&input, 1}).at(0); }

std::vector<torch::Tensor> ProgramModule::run(std::span<const torch::Tensor> inputs) {
  const auto& parts = program_->parts();
  const auto* graph = is_training() ? &parts.training : parts.evaluation();
  if (!graph) {
    throw UsageError(
        fmt::format("{} has no graph for evaluation, and the one for training depends on the mode",
                    parts.name),
        "export it with scripts/export_program.py, which writes both");
  }
  if (inputs.size() != graph->inputs.size()) {
    throw UsageError(
        fmt::format("{} takes {} inputs, and gets {}", parts.name, graph->inputs.size(), inputs.size()));
  }
  const bool own = graph != &parts.training;
  const auto& norms = own ? state_->tree.evaluation_norms : state_->tree.training_norms;
  auto [device, type] = place();
  const bool whole_batch =
      std::ranges::any_of(norms, [](const auto& norm) { return norm.exchange() != nullptr; });
  InputCheck check(parts, *graph, whole_batch, state_->symbols);
  std::vector<c10::IValue> values(static_cast<size_t>(graph->resolved.graph->slots));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = graph->inputs[i];
    check.check(input, inputs[i]);
    auto value = inputs[i];
    if (value.is_floating_point()) value = value.to(followed(input.dtype, parts.float_type, type));
    values[static_cast<size_t>(input.slot)] = std::move(value);
  }
  if (!device) device = inputs.empty() ? c10::Device(c10::kCPU) : inputs[0].device();
  for (const auto& [slot, index] : graph->tensors)
    values[static_cast<size_t>(slot)] = state_->tree.tensors[index];
  for (const auto& [slot, value] : graph->fixed) values[static_cast<size_t>(slot)] = value;
  for (const auto& [slot, index] : graph->constants) {
    values[static_cast<size_t>(slot)] = constant(own ? 1 : 0, *graph, index, *device, type);
  }
  const auto outputs = run_graph(*graph->resolved.graph, std::move(values),
                                 {.program = parts.name,
                                  .device = *device,
                                  .float_type = type,
                                  .converted = type != parts.float_type,
                                  .norms = norms,
                                  .kernels = kernels_});
  std::vector<torch::Tensor> tensors;
  for (const size_t i : graph->output_places) tensors.push_back(outputs[i].toTensor());
  return tensors;
}

// The first parameter's, as in Python. No device: the program has no tensors.
std::pair<std::optional<c10::Device>, torch::ScalarType> ProgramModule::place() const {
  const auto& parts = program_->parts();
  std::optional<c10::Device> device;
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    const auto& tensor = state_->tree.tensors[i];
    if (!device) device = tensor.device();
    const bool leads = program::scalar_type(parts.tensors[i].stored.meta.dtype) == parts.float_type;
    if (leads && tensor.is_floating_point()) return {device, tensor.scalar_type()};
  }
  return {device, parts.float_type};
}

// A replica's own copy, on the module's device.
const torch::Tensor& ProgramModule::constant(size_t which, const ProgramGraph& graph, size_t index,
                                             c10::Device device, torch::ScalarType type) {
  const auto& parts = program_->parts();
  auto& constants = state_->constants[which];
  constants.resize(graph.stored_constants.size());
  auto& tensor = constants[index];
  const auto& stored = graph.stored_constants[index];
  const auto wanted = followed(program::scalar_type(stored.meta.dtype), parts.float_type, type);
  // Converted from what the file has, not from what an earlier precision has rounded.
  if (!tensor.defined() || tensor.scalar_type() != wanted)
    tensor = program::read_stored(*parts.file.archive, stored);
  if (tensor.device() != device || tensor.scalar_type() != wanted) tensor = tensor.to(device, wanted);
  return tensor;
}

std::vector<NamedTensor> ProgramModule::state_dict() const {
  const auto& parts = program_->parts();
  std::vector<NamedTensor> all;
  for (const auto& weight : parts.file.weights) {
    all.push_back({weight.name, state_->tree.tensors[parts.places.at(weight.name)]});
  }
  return all;
}

void ProgramModule::load_state_dict(std::span<const NamedTensor> weights) {
  load_tensors(
      state_dict(), weights,
      {.name = "program", .parts = "parameters and buffers", .hint = "these are weights of another model"});
}

std::shared_ptr<torch::nn::Module> ProgramModule::clone(const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<ProgramModule>(program_, kernels_);
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < state_->tree.tensors.size(); ++i) {
    const auto& own = state_->tree.tensors[i];
    auto& other = copy->state_->tree.tensors[i];
    other.set_data(own.detach().clone().to(device.value_or(own.device())));
    if (other.requires_grad() != own.requires_grad()) other.set_requires_grad(own.requires_grad());
  }
  // From the root on, so that a module that differs from the one above it comes last.
  copy->train(is_training());
  const auto others = copy->named_modules("", /*include_self=*/false);
  for (const auto& module : named_modules("", /*include_self=*/false)) {
    if (const auto* other = others.find(module.key())) (*other)->train(module.value()->is_training());
  }
  return copy;
}

}  // namespace lockstep
