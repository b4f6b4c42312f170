#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include <lockstep/models/program/parts.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using program::ProgramGraph;

// Tensors of a program, or of a batch.
template <class Tensor>
std::string names_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& tensor : tensors) names.push_back(tensor.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// The place of each of the program's inputs in the batch. Throws DataError unless each is there, and each
// tensor of the batch is taken. own_loss: targets are inputs, too; otherwise the loss takes them.
std::vector<size_t> places_in(const Program& program, const BatchSpec& batch, bool own_loss) {
  const auto& inputs = program.inputs();
  std::vector<size_t> offered;  // places of what must be taken
  for (size_t i = 0; i < batch.size(); ++i) {
    if (own_loss || batch[i].role == Role::kInput) offered.push_back(i);
  }
  if (inputs.size() == 1 && offered.size() == 1) return offered;
  std::vector<size_t> places;
  for (const auto& input : inputs) {
    const auto found = std::ranges::find(batch, input.name, &TensorSpec::name);
    if (found == batch.end()) {
      throw DataError(fmt::format("{} takes {}, the batch has no '{}' but {}", program.parts().name,
                                  names_of(inputs), input.name, names_of(batch)),
                      "name the data's tensors as the arguments of forward()");
    }
    places.push_back(static_cast<size_t>(found - batch.begin()));
  }
  for (const size_t i : offered) {
    if (std::ranges::find(places, i) != places.end()) continue;
    throw DataError(fmt::format("{} takes {}, and not the batch's '{}'", program.parts().name,
                                names_of(inputs), batch[i].name),
                    "leave it out of the data, or name it as an argument of forward()");
  }
  return places;
}

// Where this output is among those of a graph. Empty: the first.
size_t place_of(const Program& program, const std::vector<Program::Tensor>& outputs,
                const std::string& name) {
  if (name.empty() && !outputs.empty()) return 0;
  const auto found = std::ranges::find(outputs, name, &Program::Tensor::name);
  if (found != outputs.end()) return static_cast<size_t>(found - outputs.begin());
  throw UsageError(outputs.empty() ? fmt::format("{} returns no tensor", program.parts().name)
                                   : fmt::format("{} has no output named '{}'", program.parts().name, name),
                   fmt::format("its outputs: {}", names_of(outputs)));
}

// One replica, and which of its outputs is wanted in training and in evaluation.
struct Net {
  Net(std::shared_ptr<const Program> program, const std::string& output, bool returns_loss, Kernels kernels)
      : own_loss(returns_loss), training(place_of(*program, program->outputs(), output)) {
    const auto* graph = program->parts().evaluation();
    evaluation = graph ? place_of(*program, graph->outputs, output) : training;
    module = std::make_shared<ProgramModule>(std::move(program), kernels);
  }

  torch::Tensor output(const Batch& batch) const {
    c10::SmallVector<torch::Tensor, 4> inputs;
    for (const size_t place : places_in(module->program(), batch.spec(), own_loss))
      inputs.push_back(batch[place]);
    return module->run({inputs.data(), inputs.size()}).at(module->is_training() ? training : evaluation);
  }

  bool own_loss;
  size_t training, evaluation = 0;
  std::shared_ptr<ProgramModule> module;
};

// The sum over the rows of what the program returns.
torch::Tensor loss_sum(const Program& program, const torch::Tensor& returned, int64_t rows) {
  const auto loss =
      at::isReducedFloatingType(returned.scalar_type()) ? returned.to(torch::kFloat32) : returned;
  if (loss.dim() == 1 && loss.size(0) == rows) return loss.sum();
  if (loss.dim() == 0 && rows > 0) return loss * rows;
  // A mean over no rows is no number; its gradient is 0 for all that depends on them.
  if (loss.dim() == 0) return torch::nan_to_num(loss, 0., 0., 0.) * 0;
  throw DataError(fmt::format("{} returns a loss of the shape ({}) for {} rows", program.parts().name,
                              fmt::join(loss.sizes(), ", "), rows),
                  "a loss is one number, the mean over the rows, or one number per row");
}

// "int64", as Python's torch has it.
std::string python_name(torch::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

bool fits_but_for_dtype(const Program::Tensor& input, const TensorSpec& given) {
  return input.sizes.size() == given.row_shape.size() + 1 && input.sizes[0] < 0 &&
         std::equal(given.row_shape.begin(), given.row_shape.end(), input.sizes.begin() + 1,
                    [](int64_t size, int64_t wanted) { return size < 0 || wanted < 0 || size == wanted; });
}

bool fits(const Program::Tensor& input, const TensorSpec& given) {
  const bool floating = torch::isFloatingType(input.dtype) && torch::isFloatingType(given.dtype);
  return (floating || input.dtype == given.dtype) && fits_but_for_dtype(input, given);
}

}  // namespace

ModelFactory program_factory(std::shared_ptr<const Program> program, OutputLoss loss,
                             const std::string& output, Kernels kernels) {
  place_of(*program, program->outputs(), output);
  return [=] {
    const auto net = std::make_shared<Net>(program, output, /*returns_loss=*/false, kernels);
    Model model{.module = net->module, .loss_sum = {}, .metrics = loss.metrics};
    model.output = [net](const Batch& batch) { return net->output(batch); };
    model.loss_sum = [net, of = loss.loss_sum](const Batch& batch) {
      return of(net->output(batch), batch.target());
    };
    if (loss.weight) model.weight = [of = loss.weight](const Batch& batch) { return of(batch.target()); };
    return model;
  };
}

ModelFactory program_factory_own_loss(std::shared_ptr<const Program> program, const std::string& output,
                                      Kernels kernels) {
  place_of(*program, program->outputs(), output);
  return [=] {
    const auto net = std::make_shared<Net>(program, output, /*returns_loss=*/true, kernels);
    Model model{.module = net->module, .loss_sum = {}};
    model.loss_sum = [net](const Batch& batch) -> Outcome {
      return {loss_sum(net->module->program(), net->output(batch), batch.rows())};
    };
    return model;
  };
}

void check_batch(const Program& program, const BatchSpec& batch, bool own_loss) {
  const auto places = places_in(program, batch, own_loss);
  if (!own_loss && std::ranges::find(batch, Role::kTarget, &TensorSpec::role) == batch.end()) {
    throw DataError(fmt::format("the loss of {} wants a target, the data has none but the input{} {}",
                                program.parts().name, batch.size() == 1 ? "" : "s", names_of(batch)),
                    "name the target y; for a program that returns its loss, choose its own");
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& input = program.inputs()[i];
    const auto& given = batch[places[i]];
    if (fits(input, given)) continue;
    throw DataError(
        fmt::format("{} takes {} as '{}', the data has {}", program.parts().name, program::text_of(input),
                    input.name, to_string(given)),
        input.sizes.empty() || input.sizes[0] >= 0
            ? "its first dimension must count rows: export it with a first dimension that may differ"
        : fits_but_for_dtype(input, given)
            ? fmt::format("save it in Python with that dtype: .to(torch.{})", python_name(input.dtype))
            : "give it what it was exported for, or export it with other examples");
  }
}

}  // namespace lockstep
