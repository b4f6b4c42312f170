// The arithmetic in which a model computes.
#pragma once

#include <torch/types.h>

#include <span>

#include <lockstep/support/batch.h>
#include <lockstep/support/choices.h>

namespace lockstep {

enum class Precision {
  kFp32,
  kTf32,  // on GPUs float matmuls and convolutions round their inputs to 10 bits; on CPUs fp32
  kBf16,  // layers that profit compute in bfloat16 (torch's autocast); fp32 masters, sums in float
  kFp64,  // for checks
};

inline constexpr Choice<Precision> kPrecisionNames[] = {{"fp32", Precision::kFp32},
                                                        {"tf32", Precision::kTf32},
                                                        {"bf16", Precision::kBf16},
                                                        {"fp64", Precision::kFp64}};

// The type of parameters, gradients and floating-point inputs.
torch::ScalarType dtype_of(Precision precision);

// The type that numbers of type `given` get in a model of the floating-point type `floating`: floating-point
// and complex numbers follow it. Integers, such as token ids and counters, and bools stay as they are.
torch::ScalarType converted_type(torch::ScalarType given, torch::ScalarType floating);

// The rows with their inputs in the type of this precision. Targets, and inputs that have it, are the same
// tensors.
Batch in_precision(const Batch& rows, Precision precision);

// Throws UsageError for kTf32 if none of these devices is a GPU.
void check_precision(Precision precision, std::span<const torch::Device> devices);

// Sets the arithmetic of the whole process. Call it before the first computation. GPUs use TF32 only with
// kTf32. With `deterministic` a second run gives the same bits: kernels whose result depends on timing throw,
// and no kernel is chosen by timing.
void set_arithmetic(Precision precision, bool deterministic);

// While it lives, the calling thread's forward passes on this device compute in bfloat16 if `precision` is
// kBf16; with other precisions it does nothing. The backward pass follows by itself. May be nested; the
// destructor restores the previous settings.
class AutocastGuard {
 public:
  AutocastGuard(Precision precision, torch::Device device);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const bool on_;
  const torch::DeviceType type_;
  bool enabled_before_ = false;
  torch::ScalarType dtype_before_ = torch::kBFloat16;
};

}  // namespace lockstep
