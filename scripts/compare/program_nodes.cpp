// program_nodes [REPETITIONS]: what running a program costs per operation, beyond the operation itself.
//
// A chain of 200 cheap operations on a small tensor, with gradients, runs as the graph of a program and as
// the same calls in C++, in turns. For each chain this prints the median nanoseconds of the CPU per
// operation, in both ways, and the median difference of the pairs.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/models/program/interpreter.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

using program::ReadyArgument;
using program::ReadyGraph;
using program::ReadyNode;

constexpr int kOperations = 200;
constexpr int kRunsPerRepetition = 20;

// One operation of a chain: from the slots 0 (the chain's tensor so far), 1 and 2 (weights), 3 (indices).
struct Operation {
  std::string name, overload;
  std::vector<ReadyArgument> arguments;
  std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&)> by_hand;
};

ReadyArgument slot(int number) { return {.kind = ReadyArgument::Kind::kValue, .slots = {number}}; }
ReadyArgument constant(c10::IValue value) { return {.constant = std::move(value)}; }

std::vector<Operation> operations() {
  return {
      {"aten::relu", "", {slot(0)}, [](const auto& x, const auto&, const auto&) { return torch::relu(x); }},
      {"aten::mul",
       "Tensor",
       {slot(0), slot(2)},
       [](const auto& x, const auto&, const auto& b) { return torch::mul(x, b); }},
      {"aten::add",
       "Tensor",
       {slot(0), slot(2), constant(1)},
       [](const auto& x, const auto&, const auto& b) { return torch::add(x, b); }},
      {"aten::view",
       "",
       {slot(0), constant(c10::List<int64_t>({2, 8}))},
       [](const auto& x, const auto&, const auto&) {
         return x.view({2, 8});
       }},
      {"aten::linear",
       "",
       {slot(0), slot(1), slot(2)},
       [](const auto& x, const auto& w, const auto& b) { return torch::linear(x, w, b); }},
      {"aten::layer_norm",
       "",
       {slot(0), constant(c10::List<int64_t>({8})), slot(2), slot(2), constant(1e-5), constant(true)},
       [](const auto& x, const auto&, const auto& b) { return torch::layer_norm(x, {8}, b, b); }},
      {"aten::index",
       "Tensor",
       {slot(0), {.kind = ReadyArgument::Kind::kOptionalTensors, .slots = {-1, 3}}},
       [](const auto& x, const auto&, const auto&) {
         static const auto reversed = torch::arange(8).flip(0);
         return torch::index(x, {std::optional<torch::Tensor>(), reversed});
       }},
      {"aten::transpose",
       "int",
       {slot(0), constant(-2), constant(-1)},
       [](const auto& x, const auto&, const auto&) { return x.transpose(-2, -1); }},
  };
}

ReadyGraph chain_of(const Operation& operation) {
  ReadyGraph graph{.slots = 4, .inputs = {0, 1, 2, 3}};
  int before = 0;
  for (int i = 0; i < kOperations; ++i) {
    ReadyNode node{.arguments = operation.arguments, .name = operation.name};
    node.operation =
        c10::Dispatcher::singleton().findSchemaOrThrow(operation.name.c_str(), operation.overload.c_str());
    node.arguments[0] = slot(before);
    node.last_uses = {before};
    node.results = {{.slots = {graph.slots}}};
    before = graph.slots++;
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {slot(before)};
  return graph;
}

// Nanoseconds of the CPU per operation.
template <class Work>
double cost_of(const Work& work) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (int i = 0; i < kRunsPerRepetition; ++i) work();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const auto nanoseconds =
      1e9 * static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec);
  return nanoseconds / (kRunsPerRepetition * kOperations);
}

void measure(const Operation& operation, int repetitions) {
  const auto graph = chain_of(operation);
  const auto X = torch::rand({2, 8}).requires_grad_(), W = torch::eye(8).requires_grad_(),
             b = torch::ones({8}).requires_grad_(), order = torch::arange(8).flip(0);
  const auto as_program = [&] {
    std::vector<c10::IValue> values(static_cast<size_t>(graph.slots));
    values[0] = X;
    values[1] = W;
    values[2] = b;
    values[3] = order;
    run_graph(graph, std::move(values), {.program = "chain"});
  };
  const auto by_hand = [&] {
    auto Y = X;
    for (int i = 0; i < kOperations; ++i) Y = operation.by_hand(Y, W, b);
  };
  std::vector<double> of_program, of_hand, more;
  for (int i = -2; i < repetitions; ++i) {  // two warm up
    const bool hand_first = i % 2 != 0;
    auto first = hand_first ? cost_of(by_hand) : cost_of(as_program);
    auto second = hand_first ? cost_of(as_program) : cost_of(by_hand);
    if (hand_first) std::swap(first, second);
    if (i < 0) continue;
    of_program.push_back(first);
    of_hand.push_back(second);
    more.push_back(first - second);
  }
  fmt::print("{:<18} {:>8.0f} {:>8.0f} {:>8.0f}\n", operation.name, median(of_program), median(of_hand),
             median(more));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  at::set_num_threads(1);
  fmt::print("{:<18} {:>8} {:>8} {:>8}\n", "ns per operation", "program", "by hand", "more");
  for (const auto& operation : lockstep::operations())
    lockstep::measure(operation, argc > 1 ? std::stoi(argv[1]) : 21);
}
