// program_losses NUMBERS.json THREADS [TRAINED.pt2]: trains the program that the JSON names, beside it, once
// in each precision of its runs, and prints the losses and then the evaluation with all digits, as parity.py
// computes them in Python. The weights of the first run go to TRAINED.pt2.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/models/program.h>

namespace lockstep {
namespace {

using nlohmann::json;
namespace F = torch::nn::functional;

torch::Tensor formula_tensor(const json& formula, int64_t step) {
  const std::vector<int64_t> shape = formula["shape"];
  int64_t count = 1;
  for (const auto size : shape) count *= size;
  const auto number = [&](const char* name) { return formula[name].get<int64_t>(); };
  const auto index = torch::arange(count, torch::kLong);
  auto values = (index * number("a") + step * number("b")).remainder(number("m")) + number("shift");
  if (formula["dtype"] == "float32") values = values.to(torch::kFloat) / number("divisor");
  return values.view(shape);
}

struct Autocast {
  explicit Autocast(bool on) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, on);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

struct FormulaBatch {
  std::vector<torch::Tensor> inputs;
  torch::Tensor target;  // undefined where the program returns its loss
};

torch::Tensor loss_of(ProgramModule& module, const json& numbers, const FormulaBatch& batch) {
  const auto outputs = module.run(batch.inputs);
  const auto& named = module.program().outputs();
  const std::string wanted = numbers["output"];
  const auto found = std::ranges::find(named, wanted, &Program::Tensor::name);
  const auto& output = outputs.at(found == named.end() ? 0 : static_cast<size_t>(found - named.begin()));
  const std::string loss = numbers["loss"];
  if (loss == "own") return output.mean();
  if (loss == "mse") return F::mse_loss(output, batch.target);
  if (loss == "sequence") return F::cross_entropy(output.flatten(0, 1), batch.target.flatten());
  return F::cross_entropy(output, batch.target);
}

FormulaBatch formula_batch(const json& numbers, int64_t step) {
  FormulaBatch batch;
  for (const auto& input : numbers["inputs"]) batch.inputs.push_back(formula_tensor(input, step));
  if (!numbers["target"].is_null()) batch.target = formula_tensor(numbers["target"], step);
  return batch;
}

// Trains as Python does: SGD with momentum, torch's seeds before each step, bf16 by autocast; then evaluates
// the batch of step 0. Returns the losses, and the evaluation last.
std::vector<double> train_as_python(ProgramModule& module, const json& numbers, const std::string& precision,
                                    size_t steps) {
  std::vector<torch::Tensor> trainable;
  for (const auto& parameter : module.parameters()) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  torch::optim::SGD sgd(
      trainable,
      torch::optim::SGDOptions(numbers["lr"].get<double>()).momentum(numbers["momentum"].get<double>()));
  std::vector<double> losses;
  module.train();
  for (size_t step = 0; step < steps; ++step) {
    const auto& seed = numbers["seed"];
    if (!seed.is_null()) torch::manual_seed(seed.get<uint64_t>() + step);
    sgd.zero_grad();
    const auto batch = formula_batch(numbers, static_cast<int64_t>(step));
    torch::Tensor loss;
    {
      const Autocast autocast(precision == "bf16");
      loss = loss_of(module, numbers, batch);
    }
    loss.backward();
    sgd.step();
    losses.push_back(loss.item<double>());
  }
  module.eval();
  const torch::NoGradGuard no_grad;
  const Autocast autocast(precision == "bf16");
  losses.push_back(loss_of(module, numbers, formula_batch(numbers, 0)).item<double>());
  return losses;
}

void run(const std::filesystem::path& path, const std::filesystem::path& trained) {
  std::ifstream file(path);
  const auto numbers = json::parse(file);
  const auto program = read_program(path.parent_path() / numbers["program"].get<std::string>());
  bool first = true;
  for (const auto& run : numbers["runs"]) {
    ProgramModule module(program, Kernels::kTorch);
    for (const auto loss : train_as_python(module, numbers, run["precision"], run["losses"].size())) {
      std::printf("%.17g\n", loss);
    }
    if (first && !trained.empty()) save_program(*program, module.state_dict(), trained);
    first = false;
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  at::set_num_threads(std::stoi(argv[2]));
  lockstep::run(argv[1], argc > 3 ? argv[3] : "");
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
