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
  // Layers that profit compute in float16 (autocast), with fp32 masters. Its numbers end at 65,504, and below
  // 6e-8 they are 0, so the loss is multiplied by a scale before backward and the summed gradients are
  // divided by it, as by torch.amp.GradScaler: where one is not finite, all replicas skip the update, and the
  // scale halves. For GPUs: on CPUs torch's float16 is slow, many times slower than fp32 in convolutions.
  kFp16,
  kFp64,  // for checks
};

// The loss scale of Precision::kFp16. It is halved after a step with a gradient that is not finite, which is
// skipped, and doubled after every growth_interval steps in a row without one.
struct LossScaleOptions {
  double initial = 65536;          // a power of 2 changes no bits; at least 1, at most 2^64
  int64_t growth_interval = 2000;  // at least 1
};

inline constexpr Choice<Precision> kPrecisionNames[] = {{"fp32", Precision::kFp32},
                                                        {"tf32", Precision::kTf32},
                                                        {"bf16", Precision::kBf16},
                                                        {"fp16", Precision::kFp16},
                                                        {"fp64", Precision::kFp64}};

// The type of parameters, gradients and floating-point inputs.
torch::ScalarType dtype_of(Precision precision);

// The type of the layers that profit from one of 16 bits: bfloat16 or float16, else dtype_of().
torch::ScalarType type_of_layers(Precision precision);

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

// While it lives, cuDNN takes the algorithms that it expects to be fast, instead of timing some for each
// shape of a convolution that is new to a thread: that takes seconds for a network, and does not pay off for
// shapes that are rare. The setting is the process's, and comes back with the last one that lives: none of
// the caller's convolutions may run in another thread when it begins or ends.
class NoConvolutionSearch {
 public:
  NoConvolutionSearch();
  ~NoConvolutionSearch();
  NoConvolutionSearch(const NoConvolutionSearch&) = delete;
  NoConvolutionSearch& operator=(const NoConvolutionSearch&) = delete;
};

// While it lives, the calling thread's forward passes on this device compute in type_of_layers(), where that
// is bfloat16 or float16; with other precisions it does nothing. The backward pass follows by itself. May be
// nested; the destructor restores the previous settings.
class AutocastGuard {
 public:
  AutocastGuard(Precision precision, torch::Device device);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const torch::ScalarType layers_;
  const bool on_;
  const torch::DeviceType type_;
  bool enabled_before_ = false;
  torch::ScalarType dtype_before_ = torch::kBFloat16;
};

}  // namespace lockstep
