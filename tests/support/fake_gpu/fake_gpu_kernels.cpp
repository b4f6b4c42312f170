// torch's operations on the fake GPUs: each is queued on the current stream as work that runs the CPU's
// kernel on the same memory. Queued work holds no tensor: memory that is freed too early is
// overwritten in the order of streams, as on a GPU.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <torch/library.h>

#include <cstdlib>
#include <set>

#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

namespace lockstep::testing {
namespace {

using Stack = torch::jit::Stack;
using c10::IValue;

bool on_gpu(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = c10::impl::VirtualGuardImpl(torch::kPrivateUse1).getDevice();
    auto* block = testing::allocate(fake_stream(current_stream(device)), bytes);
    return {address_of(*block), block, [](void* context) { release(static_cast<FakeBlock*>(context)); },
            device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

Memory& memory() {
  static Memory memory;
  return memory;
}

// Host memory that a GPU can copy from while the host goes on.
struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(bytes, 1));
    const std::lock_guard lock(mutex());
    known().insert(data);
    return {data, data, &give_back, torch::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static bool has(const void* data) {
    const std::lock_guard lock(mutex());
    return known().count(data) != 0;
  }

 private:
  static void give_back(void* data) {
    {
      const std::lock_guard lock(mutex());
      known().erase(data);
    }
    std::free(data);
  }
  static std::mutex& mutex() {
    static auto* one = new std::mutex;
    return *one;
  }
  static std::set<const void*>& known() {
    static auto* all = new std::set<const void*>;
    return *all;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::has(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedMemory pinned;
    return &pinned;
  }
};

const bool registered = [] {
  static Hooks hooks;
  c10::register_privateuse1_backend("privateuseone");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(torch::kPrivateUse1, &memory());
  return true;
}();

// The tensor's memory as a CPU tensor.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!on_gpu(tensor)) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

// A CPU tensor of the same shape, to find the shapes of an operation's results.
at::Tensor blank(const at::Tensor& tensor) {
  if (!on_gpu(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type())).zero_();
}

IValue replaced(const IValue& value, at::Tensor (*by)(const at::Tensor&)) {
  if (value.isTensor()) return by(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const auto& tensor : value.toTensorVector()) list.push_back(by(tensor));
  return list;
}

Stack all_replaced(at::ArrayRef<IValue> values, at::Tensor (*by)(const at::Tensor&)) {
  Stack stack;
  for (const auto& value : values) stack.push_back(replaced(value, by));
  return stack;
}

at::Tensor first_on_gpu(at::ArrayRef<IValue> values) {
  for (const auto& value : values) {
    if (value.isTensor() && on_gpu(value.toTensor())) return value.toTensor();
    if (!value.isTensorList()) continue;
    for (const auto& tensor : value.toTensorVector()) {
      if (on_gpu(tensor)) return tensor;
    }
  }
  return {};
}

void queue(const c10::Stream& stream, std::function<void()> work) {
  launch(stream, [work = std::move(work)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    try {
      work();
    } catch (const std::exception& error) {  // as an assertion in a kernel
      std::fprintf(stderr, "fake GPU: %s\n", error.what());
      break_gpus(kAssert);
    }
  });
}

// An operation that writes into arguments returns these arguments.
void push_written(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments, Stack& stack) {
  for (const auto& result : schema.returns()) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (!alias || !result.alias_info() || alias->beforeSets() != result.alias_info()->beforeSets())
        continue;
      stack.push_back(arguments[i]);
      break;
    }
  }
}

// Runs the operation on blank arguments, for its results and the shapes of what it writes.
Stack try_out(const c10::OperatorHandle& op, Stack& arguments) {
  const at::AutoDispatchBelowADInplaceOrView below;
  auto stack = arguments;
  op.callBoxed(&stack);
  return stack;
}

// Resizes tensors that are given for results.
void resize_outs(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  const auto& declared = op.schema().arguments();
  if (std::none_of(declared.begin(), declared.end(), [](const auto& argument) { return argument.is_out(); }))
    return;
  auto blanks = all_replaced(arguments, blank);
  try_out(op, blanks);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!declared[i].is_out()) continue;
    const auto out = arguments[i].toTensor();
    const auto& shape = blanks[i].toTensor();
    if (out.sizes() == shape.sizes()) continue;
    const auto room = at::empty_strided(shape.sizes(), shape.strides(), out.options());
    out.set_(room.storage(), 0, shape.sizes(), shape.strides());
  }
}

void queue_any(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto arguments = torch::jit::last(*stack, schema.arguments().size()).vec();
  const auto device = first_on_gpu(arguments).device();
  const c10::DeviceGuard guard(device);
  if (schema.is_mutable()) resize_outs(op, arguments);
  auto frame = all_replaced(arguments, on_host);
  torch::jit::drop(*stack, arguments.size());
  if (schema.is_mutable()) {
    queue(current_stream(device), [op, frame] {
      auto copy = frame;
      op.callBoxed(&copy);
    });
    return push_written(schema, arguments, *stack);
  }
  auto blanks = all_replaced(arguments, blank);
  std::vector<at::Tensor> results;
  for (const auto& value : try_out(op, blanks)) {
    const auto& shape = value.toTensor();
    stack->push_back(at::empty_strided(shape.sizes(), shape.strides(),
                                       shape.options().device(device).requires_grad(false)));
    results.push_back(on_host(stack->back().toTensor()));
  }
  queue(current_stream(device), [op, frame, results] {
    auto copy = frame;
    op.callBoxed(&copy);
    for (size_t i = 0; i < results.size(); ++i) results[i].copy_(copy[i].toTensor());
  });
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value());
  return at::Tensor(at::detail::empty_generic(size, &memory(),
                                              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                              c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value());
  return at::Tensor(at::detail::empty_strided_generic(size, stride, &memory(),
                                                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                      c10::dtype_or_default(dtype)));
}

// As torch's copy between GPUs: on the source's stream, ordered after the target stream's present work and
// before its later work.
void copy_on_gpus(const at::Tensor& to, const at::Tensor& from) {
  const auto stream = current_stream(from.device());
  const auto other = current_stream(to.device());
  if (stream != other) order_after(stream, other);
  queue(stream, [to = on_host(to), from = on_host(from)] { to.copy_(from); });
  if (stream != other) order_after(other, stream);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const auto from = source.expand(self.sizes());
  if (on_gpu(self) && on_gpu(from)) {
    copy_on_gpus(self, from);
    return self;
  }
  const auto stream = current_stream(on_gpu(self) ? self.device() : from.device());
  queue(stream, [to = on_host(self), from = on_host(from)] { to.copy_(from); });
  const bool pinned = PinnedMemory::has((on_gpu(self) ? source : self).storage().data());
  if (!non_blocking || !pinned) stream.synchronize();
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) {
  const auto stream = current_stream(self.device());
  at::Scalar value;
  queue(stream, [&value, self = on_host(self)] { value = at::_local_scalar_dense(self); });
  stream.synchronize();
  return value;
}

bool compatible(const at::Tensor&, const at::Tensor&) { return true; }

// Autocast converts nothing here: a test's network does.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&queue_any>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("_has_compatible_shallow_copy_type", compatible);
  m.impl("copy_", copy_);
  m.impl("_local_scalar_dense", local_scalar);
}

}  // namespace
}  // namespace lockstep::testing
