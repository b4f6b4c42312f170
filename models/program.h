// Trains what Python exported: a network of any kind, written by scripts/export_program.py or torch.export
// (docs/programs.md).
//
//   const auto program = read_program("net.pt2");
//   Trainer trainer(program_factory(program, mse()), training, test, options);
//   ...
//   const auto& net = static_cast<const ProgramModule&>(*trainer.replicas()[0].module);
//   save_program(*program, net.state_dict(), "trained.pt2");   // torch.export.load() takes it
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/kernels.h>
#include <lockstep/support/losses.h>
#include <lockstep/support/types.h>

namespace lockstep {
namespace program {
struct ProgramGraph;
}

// A program as its file says. Immutable: all replicas share it.
class Program {
 public:
  // An input or an output.
  struct Tensor {
    std::string name;  // an argument of forward(); a key of its dict, "output", "output.0"
    torch::ScalarType dtype = torch::kFloat32;
    std::vector<int64_t> sizes = {};  // -1: any. The first one counts the rows where it is -1
  };

  // How many rows a program may be given at once, such as a replica's part of a batch.
  struct Rows {
    int64_t least = 1, most = std::numeric_limits<int64_t>::max();
    bool empty = true;     // 0 rows run, too: with BnPolicy::kSync replicas without rows compute them
    std::string why = {};  // what limits them, such as "Python refuses 1 row: ..."; empty without a limit
  };

  struct Parts;
  explicit Program(std::shared_ptr<const Parts> parts);

  const std::filesystem::path& path() const;
  const std::string& digest() const;          // SHA-256 of the file, in hex
  const std::string& torch_version() const;   // that exported it: "2.15.0+cpu"
  const std::vector<Tensor>& inputs() const;  // tensors that forward() takes, in order
  const std::vector<Tensor>& outputs()
      const;                        // tensors that it returns, in order; tuples and dicts flattened
  int64_t parameter_count() const;  // numbers in parameters, tied ones once

  // "aten::conv2d" -> how often the training graph calls it.
  std::map<std::string, int64_t> operations() const;

  bool has_batch_norm() const;  // that normalises by the batch in training

  // Batch norms that lockstep's kernels compute in training, together with a convolution before and ReLU
  // after them, as ProgramModule says.
  int64_t fused_batch_norms() const;

  // Places of those whose averages do not belong to a module, such as "net.py, line 12: ...":
  // BnPolicy::kAverage leaves them as they are. BnPolicy::kSync exchanges the statistics of all batch norms.
  std::vector<std::string> unmatched_norms() const;

  // Batch norms by running averages, and dropouts that drop nothing, in the training graph: as after Python's
  // eval(), which freezes them. whole: no operation of the graph depends on the mode, and there is no other
  // graph, so the network seems to have been in that mode when torch.export.save wrote it.
  struct EvalForm {
    int64_t batch_norms = 0, dropouts = 0;
    bool whole = false;
  };
  EvalForm eval_form() const;

  bool random() const;          // an operation draws random numbers in training, such as dropout
  bool writes_buffers() const;  // training changes buffers by other operations than batch norms
  bool captures() const;        // no operation waits for a GPU, or has results whose sizes depend on data

  // True if it can be evaluated: the file has a graph for it, or none of the training graph's operations
  // depends on the mode.
  bool has_eval_graph() const;

  // Limits of the training graph or the evaluation's, from the ranges that Python found, and from what
  // scripts/export_program.py saw when it compared the program with Python. whole_batch_norms: with
  // BnPolicy::kSync batch norms do not need two rows of each replica.
  Rows rows(bool training, bool whole_batch_norms = false) const;

  const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

// "any number of rows", "at least 2 rows", "1 to 8 rows", "exactly 4 rows", "no number of rows". 0 rows are
// left out.
std::string to_string(const Program::Rows& rows);

// Reads a program. Throws WeightsError for a file that cannot be read, that is damaged, or that uses what is
// not supported; the error has the line of Python.
std::shared_ptr<const Program> read_program(const std::filesystem::path& path);

// One replica: the program's weights, which are this module's own, and its graphs. is_training() chooses
// between these. Parameters and buffers have Python's names, in Python's order; tied ones are registered
// once, under the first name. Batch norms are lockstep's (batch_norm.h). Not thread-safe.
//
// Kernels::kTorch computes the bits that Python computes. The others compute a convolution of images, a batch
// norm by the batch, perhaps an addition, and ReLU together, as those of ResNet18 (resnet18.h), where a
// program trains them in float or bfloat16 on a CPU, one after the other, and the norm has a multiple of 16
// channels: results differ by rounding, and biases of such convolutions get no gradient (.grad stays as it
// was, their hooks run), since the norm removes them. All else, and evaluation, is computed by torch's.
class ProgramModule : public torch::nn::Module {
 public:
  explicit ProgramModule(std::shared_ptr<const Program> program, Kernels kernels = Kernels::kAuto);
  ~ProgramModule() override;

  // The first output of a program with one input. Throws as run() does, and UsageError for another number of
  // inputs.
  torch::Tensor forward(const torch::Tensor& input);

  // All outputs, in the order of Program::outputs(), for these inputs, in the order of Program::inputs(), on
  // the module's device. Floating-point inputs are converted to the program's type. Throws DataError for
  // other dtypes or sizes than the program was exported for, for more or fewer rows than Program::rows(), and
  // for what an operation throws, with its line of Python; UsageError in evaluation mode without a graph for
  // it.
  std::vector<torch::Tensor> run(std::span<const torch::Tensor> inputs);

  // The weights that Python's load_state_dict(strict=True) takes, in the file's order: parameters, then the
  // buffers that are persistent; tied ones under each of their names, one after the other. The tensors are
  // the module's own.
  std::vector<NamedTensor> state_dict() const;

  // Copies weights with the names of state_dict(); tied ones may come under any of theirs. Throws
  // WeightsError, and changes nothing, unless names and shapes are the module's.
  void load_state_dict(std::span<const NamedTensor> weights);

  const Program& program() const { return *program_; }
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  struct State;

  std::pair<std::optional<torch::Device>, torch::ScalarType> place() const;
  const torch::Tensor& constant(size_t which, const program::ProgramGraph& graph, size_t index,
                                torch::Device device, torch::ScalarType type);

  std::shared_ptr<const Program> program_;
  const Kernels kernels_;
  std::unique_ptr<State> state_;
};

// A factory of replicas with the loss of one output, by default the first, and of the batch's one target. An
// input of the program takes the batch's tensor of its name; a single input takes the batch's single one,
// whatever its name. Throws UsageError for an output that the program does not have. The model throws
// DataError for a batch that lacks an input, or has one that the program does not take (check_batch()).
ModelFactory program_factory(std::shared_ptr<const Program> program, OutputLoss loss = classification(),
                             const std::string& output = {}, Kernels kernels = Kernels::kAuto);

// The same of a program that returns its loss, by default as the first output: one number, which is the mean
// over its rows, or (n), one per row. Targets, too, are inputs of the program, by name.
ModelFactory program_factory_own_loss(std::shared_ptr<const Program> program, const std::string& output = {},
                                      Kernels kernels = Kernels::kAuto);

// Throws DataError, with the names and both values, unless batches of these tensors fit the program: each
// input is there with its dtype and sizes, each tensor is taken, and there is a target for the loss.
// own_loss: targets are inputs, too.
void check_batch(const Program& program, const BatchSpec& batch, bool own_loss = false);

// Writes a copy of the program's file with these weights, which have the names of
// ProgramModule::state_dict(), in all of its graphs: Python's torch.export.load() takes it, and
// aoti_compile_and_package(). Their dtypes become the file's. Replaces an existing file, whole or not at all.
// Throws WeightsError for other names or shapes, OutputError if it cannot be written.
void save_program(const Program& program, std::span<const NamedTensor> weights,
                  const std::filesystem::path& path);

}  // namespace lockstep
