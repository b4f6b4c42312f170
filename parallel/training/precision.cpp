#include <lockstep/parallel/training/precision.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <cstdlib>
#include <mutex>

#include <lockstep/parallel/devices.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// torch's setting is the process's, and so is this: trainers in two threads may hold the search off at once.
struct SearchSetting {
  std::mutex mutex;
  int held_off = 0;  // how often
  bool before = false;
};

SearchSetting& search_setting() {
  static SearchSetting setting;
  return setting;
}

}  // namespace

torch::ScalarType dtype_of(Precision precision) {
  return precision == Precision::kFp64 ? torch::kFloat64 : torch::kFloat32;
}

torch::ScalarType type_of_layers(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return torch::kBFloat16;
    case Precision::kFp16:
      return torch::kFloat16;
    default:
      return dtype_of(precision);
  }
}

torch::ScalarType converted_type(torch::ScalarType given, torch::ScalarType floating) {
  if (at::isComplexType(given)) return at::toComplexType(floating);
  return at::isFloatingType(given) ? floating : given;
}

Batch in_precision(const Batch& rows, Precision precision) {
  return rows.converted([&](const torch::Tensor& tensor, const TensorSpec& spec) {
    if (spec.role == Role::kTarget) return tensor;
    return tensor.to(converted_type(tensor.scalar_type(), dtype_of(precision)));
  });
}

void check_precision(Precision precision, std::span<const torch::Device> devices) {
  if (precision != Precision::kTf32 || any_gpu(devices)) return;
  const NamedOption tf32{"precision", "tf32", "Precision::kTf32"};
  const NamedOption fp32{"precision", "fp32", "Precision::kFp32"};
  const NamedOption bf16{"precision", "bf16", "Precision::kBf16"};
  throw UsageError(tf32 + " needs a GPU, but the devices are " + to_string(devices),
                   "use " + fp32 + " or " + bf16);
}

void set_arithmetic(Precision precision, bool deterministic) {
  auto& context = at::globalContext();
  const bool tf32 = precision == Precision::kTf32;
  context.setAllowTF32CuBLAS(tf32);
  context.setAllowTF32CuDNN(tf32);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicCuDNN(deterministic);
  // New memory need not be filled: no kernel here reads what it has not written.
  context.setDeterministicFillUninitializedMemory(false);
  // cuBLAS repeats its results only with a workspace of fixed size. It reads this variable at its first call.
  if (deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  context.setBenchmarkCuDNN(!deterministic);  // picks the fastest convolution by timing
}

NoConvolutionSearch::NoConvolutionSearch() {
  auto& setting = search_setting();
  const std::lock_guard lock(setting.mutex);
  if (setting.held_off++ == 0) setting.before = at::globalContext().benchmarkCuDNN();
  at::globalContext().setBenchmarkCuDNN(false);
}

NoConvolutionSearch::~NoConvolutionSearch() {
  auto& setting = search_setting();
  const std::lock_guard lock(setting.mutex);
  if (--setting.held_off == 0) at::globalContext().setBenchmarkCuDNN(setting.before);
}

AutocastGuard::AutocastGuard(Precision precision, torch::Device device)
    : layers_(type_of_layers(precision)), on_(layers_ != dtype_of(precision)), type_(device.type()) {
  if (!on_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(type_);
  dtype_before_ = at::autocast::get_autocast_dtype(type_);
  at::autocast::set_autocast_dtype(type_, layers_);
  at::autocast::set_autocast_enabled(type_, true);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, enabled_before_);
  at::autocast::set_autocast_dtype(type_, dtype_before_);
}

}  // namespace lockstep
