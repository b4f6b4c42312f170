// Runs a resolved graph.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/types.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/models/program/resolve.h>
#include <lockstep/support/batch_statistics.h>
#include <lockstep/support/kernels.h>

namespace torch::nn {
class Module;
}

namespace lockstep::program {

// A module that stands for a batch norm of the graph.
struct BoundNorm {
  std::shared_ptr<torch::nn::Module> module;
  std::function<StatisticsExchange*()> exchange;  // of the next forward pass, or null
};

// The replica with which a graph is run.
struct Surroundings {
  std::string program;  // for errors: "program 'net.pt2'"
  c10::Device device = c10::kCPU;
  torch::ScalarType float_type = torch::kFloat32;  // of the module
  bool converted = false;                          // it is not the program's
  std::span<const BoundNorm> norms = {};           // those of Resolved::norms
  Kernels kernels = Kernels::kTorch;               // of ReadyGraph::conv_norms
};

// Runs the graph. values: one per slot, with the inputs in theirs. Returns the graph's outputs. Batch norms
// with an exchange take the statistics of the whole batch; those whose module is in evaluation mode keep
// their averages, and normalise by them. Throws DataError for what an operation throws, with its name and its
// line of Python; errors of lockstep, of memory and of a GPU stay as they are.
std::vector<c10::IValue> run_graph(const ReadyGraph& graph, std::vector<c10::IValue> values,
                                   const Surroundings& with);

// Throws std::runtime_error unless the arguments of aten::lstm, gru, rnn_tanh or rnn_relu (overload "input",
// or "data" for packed sequences) fit each other: torch does not check all of it before it reads their
// memory.
void check_rnn(const std::string& name, std::span<const c10::IValue> arguments);

}  // namespace lockstep::program
