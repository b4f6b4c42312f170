#include <lockstep/support/thread_random.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// A key of torch's dispatcher above those of autocast and autograd. Torch has it for tests, and no kernels
// for it. It is active only in threads that include it.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local at::Generator thread_generator;

bool is_generator(const c10::Argument& argument) { return argument.name() == "generator"; }

// Returns true if this argument places the operation on another device than a CPU.
bool is_elsewhere(const c10::IValue& argument) {
  if (argument.isTensor()) return argument.toTensor().defined() && !argument.toTensor().is_cpu();
  return argument.isDevice() && !argument.toDevice().is_cpu();
}

// Gives the thread's generator to an operation that was called without one.
void fill_in_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto given = torch::jit::last(*stack, arguments.size());
  if (thread_generator.defined() && std::none_of(given.begin(), given.end(), is_elsewhere)) {
    const auto place = std::find_if(arguments.begin(), arguments.end(), is_generator) - arguments.begin();
    auto& generator = torch::jit::peek(*stack, static_cast<size_t>(place), arguments.size());
    if (generator.isNone()) generator = thread_generator;
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

// All operations pass the key by, but those of torch that take a generator.
struct Registration {
  Registration() {
    all.fallback(torch::CppFunction::makeFallthrough());
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      if (name.getNamespace() != "aten") continue;
      const auto op = dispatcher.findSchema(name);
      if (!op) continue;
      const auto& arguments = op->schema().arguments();
      if (std::none_of(arguments.begin(), arguments.end(), is_generator)) continue;
      const auto overload = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      aten.impl(overload.c_str(), torch::CppFunction::makeFromBoxedFunction<&fill_in_generator>());
    }
  }

  torch::Library all{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
  torch::Library aten{torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__};
};

}  // namespace

void ThreadRandom::prepare() {
  static const auto* const registration = new Registration;  // as long as the dispatcher may be called
  static_cast<void>(registration);
}

ThreadRandom::ThreadRandom(at::Generator generator)
    : guard_((prepare(), kKey)), outer_(std::exchange(thread_generator, std::move(generator))) {}

ThreadRandom::~ThreadRandom() { thread_generator = std::move(outer_); }

at::Generator ThreadRandom::generator() {
  return thread_generator.defined() ? thread_generator : at::detail::getDefaultCPUGenerator();
}

}  // namespace lockstep
