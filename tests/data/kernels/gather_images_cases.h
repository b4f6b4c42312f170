// gather_images() against torch's index_select and division, on the CPU (emulated) or a GPU.
#pragma once

#include <ATen/ops/index_select.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep::testing {

// `offset` elements of memory are left free before images and X, which reduces their alignment.
inline void check_gather(torch::Device device, int64_t n, int64_t pixels, int64_t offset) {
  INFO(n << " rows of " << pixels << " pixels, " << offset << " off");
  constexpr int64_t kSize = 40;
  constexpr int64_t kBehind = 64;  // elements after the results, which must not change
  const auto all = torch::arange(kSize * pixels + offset).mul(7).add(3).remainder(256).to(torch::kUInt8);
  const auto images = all.slice(0, offset).view({kSize, pixels});
  const auto labels = torch::arange(kSize).mul(11).remainder(10);
  const auto rows = torch::arange(n).mul(29).add(5).remainder(kSize);

  auto X = torch::full({offset + n * pixels + kBehind}, -1., torch::TensorOptions(device));
  auto y = torch::full({n + kBehind}, -1, torch::TensorOptions(device).dtype(torch::kInt64));
  const auto images_there = all.to(device);
  const auto labels_there = labels.to(device);
  const auto rows_there = rows.to(device);
  gather_images(images_there.const_data_ptr<uint8_t>() + offset, labels_there.const_data_ptr<int64_t>(),
                rows_there.const_data_ptr<int64_t>(), n, pixels, X.mutable_data_ptr<float>() + offset,
                y.mutable_data_ptr<int64_t>(), native_stream(device));

  X = X.cpu();
  y = y.cpu();
  const auto expected = images.index_select(0, rows).to(torch::kFloat32).div_(torch::full({}, 255.0f));
  CHECK(X.slice(0, offset, offset + n * pixels).view({n, pixels}).equal(expected));
  CHECK(y.slice(0, 0, n).equal(labels.index_select(0, rows)));
  for (const auto& untouched : {X.slice(0, 0, offset), X.slice(0, offset + n * pixels), y.slice(0, n)}) {
    CHECK(untouched.eq(-1).all().item<bool>());
  }
}

inline void check_gathers(torch::Device device) {
  for (const int64_t n : {0, 1, 15, 16, 17, 257}) {
    for (const int64_t pixels : {1, 4, 15, 16, 17, 784, 785}) {
      for (const int64_t offset : {0, 1, 4}) check_gather(device, n, pixels, offset);
    }
  }
}

// Checks all 256 values of a pixel against IEEE division.
inline void check_every_value(torch::Device device) {
  const auto images = torch::arange(256).to(torch::kUInt8);
  const auto zero = torch::zeros({1}, torch::kInt64);
  const auto images_there = images.to(device);
  const auto zero_there = zero.to(device);
  auto X = torch::empty({256}, torch::TensorOptions(device));
  auto y = torch::empty({1}, zero_there.options());
  gather_images(images_there.const_data_ptr<uint8_t>(), zero_there.const_data_ptr<int64_t>(),
                zero_there.const_data_ptr<int64_t>(), 1, 256, X.mutable_data_ptr<float>(),
                y.mutable_data_ptr<int64_t>(), native_stream(device));
  X = X.cpu();
  int reciprocal = 0;  // how many a multiplication by 1/255 would change
  for (int i = 0; i < 256; ++i) {
    const auto expected = static_cast<float>(static_cast<double>(i) / 255.0);
    CHECK(X[i].item<float>() == expected);
    reciprocal += static_cast<float>(i) * (1.0f / 255.0f) != expected;
  }
  CHECK(reciprocal > 0);
}

}  // namespace lockstep::testing
