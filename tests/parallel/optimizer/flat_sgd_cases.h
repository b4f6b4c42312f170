// flat_sgd() against torch's fused SGD, on the CPU (emulated) or a GPU.
#pragma once

#include <ATen/ops/_fused_sgd.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <type_traits>

#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/support/compare.h>

namespace lockstep::testing {

// Different values of both signs, at most 1.
inline torch::Tensor waves(int64_t n, double step, torch::ScalarType dtype) {
  return (torch::arange(n, torch::kFloat64) * step + step).sin().to(dtype);
}

// A buffer with n values from `offset` on. The elements before and after them must not change.
struct Guarded {
  static constexpr int64_t kBehind = 32;

  Guarded(const torch::Tensor& start, int64_t offset, torch::Device device)
      : n(start.numel()),
        first(offset),
        all(torch::full({offset + n + kBehind}, 7, start.options().device(device))) {
    values().copy_(start);
  }

  torch::Tensor values() const { return all.slice(0, first, first + n); }
  template <class T>
  T* data() const {
    return static_cast<T*>(all.mutable_data_ptr()) + first;
  }
  bool untouched_outside() const {
    return all.slice(0, 0, first).eq(7).all().item<bool>() &&
           all.slice(0, first + n).eq(7).all().item<bool>();
  }

  int64_t n, first;
  torch::Tensor all;
};

// Three steps, so that momentum has an effect. `scale` 0: none is given.
template <class T>
void check_flat_sgd_steps(torch::Device device, int64_t n, int64_t offset, const FlatSgdOptions& options,
                          double scale, bool with_bf16) {
  constexpr bool kFloat = std::is_same_v<T, float>;
  INFO((kFloat ? "float, " : "double, ")
       << n << " elements, " << offset << " off, momentum " << options.momentum << ", weight decay "
       << options.weight_decay << ", scale " << scale);
  const auto dtype = kFloat ? torch::kFloat32 : torch::kFloat64;
  auto expected = waves(n, .37, dtype);
  std::vector<torch::Tensor> expected_momentum;
  if (options.momentum != 0) expected_momentum.push_back(torch::zeros({n}, dtype));

  const Guarded params(expected, offset, device);
  const Guarded grads(torch::zeros({n}, dtype), offset, device);
  const Guarded momentum(torch::zeros({n}, dtype), offset, device);
  const Guarded bf16(torch::zeros({n}, torch::kBFloat16), offset, device);
  const auto scale_there =
      torch::full({1}, scale, torch::TensorOptions(device).dtype(torch::CppTypeToScalarType<T>()));
  FlatSgdBuffers<T> buffers{params.data<T>(), grads.data<T>(), nullptr, nullptr, n};
  if (options.momentum != 0) buffers.momentum = momentum.data<T>();
  if (with_bf16) buffers.bf16 = bf16.data<Bf16>();

  for (int step = 0; step < 3; ++step) {
    const double lr = .3 / (step + 1);
    const auto g = waves(n, .53 + step, dtype);
    at::_fused_sgd_({expected}, {scale == 0 ? g : g * scale}, expected_momentum, options.weight_decay,
                    options.momentum, lr, /*dampening=*/0, options.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false);
    grads.values().copy_(g);
    const auto lr_there = torch::full({1}, lr, torch::TensorOptions(device).dtype(torch::kFloat64));
    flat_sgd(buffers, options, lr_there.const_data_ptr<double>(),
             scale == 0 ? nullptr : scale_there.template const_data_ptr<T>(), native_stream(device));
    CHECK(grads.values().eq(0).all().item<bool>());
  }

  const double tolerance = kFloat ? 1e-6 : 1e-14;
  const auto close = [&](const torch::Tensor& a, const torch::Tensor& b) {
    return n == 0 || max_difference(a.cpu(), b) <= tolerance * max_abs(b);
  };
  CHECK(close(params.values(), expected));
  if (options.momentum != 0) CHECK(close(momentum.values(), expected_momentum[0]));
  const auto rounded = params.values().cpu().to(torch::kFloat32).to(torch::kBFloat16);
  CHECK(bf16.values().cpu().equal(with_bf16 ? rounded : torch::zeros({n}, torch::kBFloat16)));
  for (const auto* buffer : {&params, &grads, &momentum, &bf16}) CHECK(buffer->untouched_outside());
}

template <class T>
void check_flat_sgd(torch::Device device) {
  const FlatSgdOptions all{.momentum = .9, .weight_decay = 5e-2, .nesterov = true};
  for (const int64_t n : {0, 1, 3, 4, 15, 16, 17, 785, 1024, 4099}) {
    for (const int64_t offset : {0, 1, 4}) check_flat_sgd_steps<T>(device, n, offset, all, .5, true);
  }
  for (const double momentum : {0., .9}) {
    for (const double weight_decay : {0., 5e-2}) {
      for (const double scale : {0., .125}) {
        const FlatSgdOptions some{.momentum = momentum, .weight_decay = weight_decay};
        check_flat_sgd_steps<T>(device, 1031, 0, some, scale, false);
      }
    }
  }
}

}  // namespace lockstep::testing
