#include <lockstep/models/program/interpreter.h>

#include <ATen/ScalarOps.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include <lockstep/models/layers/batch_norm/whole_batch_norm.h>
#include <lockstep/models/program/fused_layers.h>
#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using Kind = ReadyArgument::Kind;
using Values = std::vector<IValue>;

const IValue& at(const Values& values, int slot) { return values[static_cast<size_t>(slot)]; }

IValue ints_of(const ReadyArgument& argument, const Values& values) {
  c10::List<int64_t> list;
  list.reserve(argument.ints.size());
  for (size_t i = 0; i < argument.ints.size(); ++i) {
    list.push_back(argument.slots[i] < 0 ? argument.ints[i] : at(values, argument.slots[i]).toInt());
  }
  return list;
}

IValue tensors_of(const ReadyArgument& argument, const Values& values) {
  c10::List<at::Tensor> list;
  list.reserve(argument.slots.size());
  for (const int slot : argument.slots) list.push_back(at(values, slot).toTensor());
  return list;
}

IValue optional_tensors_of(const ReadyArgument& argument, const Values& values) {
  c10::List<std::optional<at::Tensor>> list;
  list.reserve(argument.slots.size());
  for (const int slot : argument.slots) {
    list.push_back(slot < 0 ? std::nullopt : std::optional(at(values, slot).toTensor()));
  }
  return list;
}

IValue make(const ReadyArgument& argument, const Values& values, const Surroundings& with) {
  switch (argument.kind) {
    case Kind::kConstant:
      break;
    case Kind::kValue:
      return at(values, argument.slots[0]);
    case Kind::kWrapped: {
      const auto& value = at(values, argument.slots[0]);
      return value.isTensor() ? value : IValue(at::native::wrapped_scalar_tensor(value.toScalar()));
    }
    case Kind::kTensors:
      return tensors_of(argument, values);
    case Kind::kOptionalTensors:
      return optional_tensors_of(argument, values);
    case Kind::kInts:
      return ints_of(argument, values);
    case Kind::kDevice:
      return with.device;
    case Kind::kFloatType:
      if (with.converted) return with.float_type;
      break;
  }
  return argument.constant;
}

// The arguments of aten::batch_norm.
enum NormArgument : size_t {
  kInput,
  kWeight,
  kBias,
  kMean,
  kVariance,
  kTraining,
  kMomentum,
  kEps,
  kNormArguments
};

at::Tensor optional_tensor(const IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }

// As Python's layers, whose check is not in the graph: the variance of one value is no number.
void require_two_values(const at::Tensor& X) {
  if (X.dim() < 2 || X.size(1) == 0 || X.numel() != X.size(1)) return;
  throw DataError("a batch norm in training has one value per channel",
                  "it needs two rows on each replica: use larger batches, fewer replicas or fewer "
                  "micro-batches, or leave a "
                  "small last batch out; with " +
                      NamedOption{"bn", "sync", "BnPolicy::kSync"} + " the whole batch needs two");
}

void batch_norm(const ReadyNode& node, const BoundNorm& norm, const Values& values, Values& stack,
                FusedLayers& fused) {
  if (!stack[kTraining].toBool()) return node.operation->callBoxed(stack);
  if (!norm.module->is_training() && !stack[kMean].isNone()) {
    stack[kTraining] = false;
    return node.operation->callBoxed(stack);
  }
  auto* exchange = norm.exchange();
  if (!exchange) require_two_values(stack[kInput].toTensor());
  if (fused.compute(node, values, stack)) return;
  if (!exchange) return node.operation->callBoxed(stack);
  auto Y = whole_batch_norm(stack[kInput].toTensor(),
                            {.weight = optional_tensor(stack[kWeight]),
                             .bias = optional_tensor(stack[kBias]),
                             .running_mean = optional_tensor(stack[kMean]),
                             .running_var = optional_tensor(stack[kVariance]),
                             .momentum = stack[kMomentum].toDouble(),
                             .eps = stack[kEps].toDouble()},
                            *exchange);
  stack.clear();
  stack.emplace_back(std::move(Y));
}

void region(const ReadyNode& node, Values& stack, const Surroundings& with) {
  const c10::AutoGradMode mode(node.grad_enabled);
  const auto& body = *node.body;
  Values values(static_cast<size_t>(body.slots));
  for (size_t i = 0; i < stack.size(); ++i) values[static_cast<size_t>(body.inputs[i])] = std::move(stack[i]);
  stack = run_graph(body, std::move(values), with);
}

// Replaces the arguments on the stack by the results.
void compute(const ReadyNode& node, const Values& values, Values& stack, const Surroundings& with,
             FusedLayers& fused) {
  if (node.norm >= 0) {
    return batch_norm(node, with.norms[static_cast<size_t>(node.norm)], values, stack, fused);
  }
  if (fused.compute(node, values, stack)) return;
  if (node.counter >= 0 && !with.norms[static_cast<size_t>(node.counter)].module->is_training()) {
    stack.resize(1);  // a frozen one does not count: the result is the counter as it is
    return;
  }
  if (node.is_rnn) check_rnn(node.name, stack);
  if (node.operation) return node.operation->callBoxed(stack);
  if (node.body) return region(node, stack, with);
  auto result = node.arithmetic(stack);
  stack.clear();
  stack.push_back(std::move(result));
}

void store_list(const ReadyResult& result, const IValue& list, Values& values) {
  auto tensors = list.toTensorVector();
  if (tensors.size() != result.slots.size()) {
    throw std::runtime_error(
        fmt::format("it gives {} tensors, the program has {}", tensors.size(), result.slots.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (result.slots[i] >= 0) values[static_cast<size_t>(result.slots[i])] = std::move(tensors[i]);
  }
}

// Only lockstep's kernels need it: torch's leave tensors as Python's.
void restore(const std::vector<int>& slots, Values& values, const Surroundings& with) {
  if (with.kernels == Kernels::kTorch) return;
  for (const int slot : slots) {
    auto& value = values[static_cast<size_t>(slot)];
    if (value.isTensor()) value = value.toTensor().contiguous();
  }
}

void run_node(const ReadyNode& node, Values& values, Values& stack, const Surroundings& with,
              FusedLayers& fused) {
  restore(node.restored, values, with);
  stack.clear();
  for (const auto& argument : node.arguments) stack.push_back(make(argument, values, with));
  compute(node, values, stack, with, fused);
  if (stack.size() != node.results.size()) {
    throw std::runtime_error(
        fmt::format("it gives {} results, the program has {}", stack.size(), node.results.size()));
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    const auto& result = node.results[i];
    if (result.is_list) {
      store_list(result, stack[i], values);
    } else if (result.slots[0] >= 0) {
      values[static_cast<size_t>(result.slots[0])] = std::move(stack[i]);
    }
  }
  for (const int slot : node.last_uses) values[static_cast<size_t>(slot)] = IValue();
}

// Call it in a handler.
[[noreturn]] void rethrow(const ReadyNode& node, const std::string& program) try {
  throw;
} catch (const Error&) {
  throw;
} catch (const c10::OutOfMemoryError&) {
  throw;
} catch (const c10::AcceleratorError&) {
  throw;
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception& error) {
  auto words = words_of(error);
  if (is_out_of_host_memory(words)) throw;
  words = words.substr(0, words.find("\nException raised from"));
  words.erase(words.find_last_not_of(". \n") + 1);
  const auto line = node.line.empty() ? "" : fmt::format(" (line of Python: {})", node.line);
  throw DataError(fmt::format("{}, operation {}: {}{}", program, node.name, words, line));
}

}  // namespace

std::vector<IValue> run_graph(const ReadyGraph& graph, std::vector<IValue> values, const Surroundings& with) {
  Values stack;
  FusedLayers fused(graph, with);
  for (const auto& node : graph.nodes) {
    try {
      run_node(node, values, stack, with, fused);
    } catch (...) {
      rethrow(node, with.program);
    }
  }
  restore(graph.restored, values, with);
  Values outputs;
  outputs.reserve(graph.outputs.size());
  for (const auto& output : graph.outputs) outputs.push_back(make(output, values, with));
  return outputs;
}

}  // namespace lockstep::program
