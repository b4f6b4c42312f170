// augment_images() against augment_rows(), on the CPU (emulated) or a GPU.
#pragma once

#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/data/images/augment_rows.h>
#include <lockstep/data/kernels/augment_images.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep::testing {

// An image of several blocks, and ones that are no multiple of a block.
inline constexpr ImageSizes kAugmentedShapes[] = {{3, 32, 32}, {1, 28, 28}, {3, 41, 37}, {4, 1, 5}};
inline constexpr const char* kAugmentations[] = {"none", "crop:4,flip", "resized-crop:.1,flip,cutout:7",
                                                 "crop:50", "cutout:3"};

template <class Out>
void check_augmented(torch::Device device, const ImageSizes& shape, const char* text, bool by_row) {
  INFO(text << ", " << shape.height << " x " << shape.width << ", by row: " << by_row);
  constexpr int64_t kImages = 12, kBehind = 64;  // elements after the result, which must not change
  const int64_t size = int64_t{shape.channels} * shape.height * shape.width;
  const auto images = torch::arange(kImages * size).mul(37).remainder(251).to(torch::kUInt8);
  const auto values = torch::arange(shape.channels * 256).sin();
  const auto rows = torch::tensor({3, 0, 11, 3, 7}, torch::kInt64);
  const auto options = torch::dtype(c10::CppTypeToScalarType<Out>::value);
  torch::Tensor expected = torch::full({5 * size + kBehind}, 3, options);
  torch::Tensor found = expected.to(device, /*non_blocking=*/false, /*copy=*/true);
  AugmentedRows batch = {.images = images.const_data_ptr<uint8_t>(),
                         .rows = rows.const_data_ptr<int64_t>(),
                         .n = 5,
                         .by_row = by_row ? 1 : 0,
                         .shape = shape,
                         .draws = draws_of(parse_augmentation(text), 5, 1),
                         .values = values.const_data_ptr<float>()};
  augment_rows(batch, expected.mutable_data_ptr<Out>(), 1);
  const auto images_there = images.to(device), values_there = values.to(device), rows_there = rows.to(device);
  batch.images = images_there.const_data_ptr<uint8_t>();
  batch.rows = rows_there.const_data_ptr<int64_t>();
  batch.values = values_there.const_data_ptr<float>();
  augment_images(batch, found.mutable_data_ptr<Out>(), native_stream(device));
  CHECK(found.cpu().equal(expected));
  batch.n = 0;
  augment_images(batch, found.mutable_data_ptr<Out>(), native_stream(device));
  CHECK(found.cpu().equal(expected));
}

inline void check_all_augmented(torch::Device device) {
  for (const auto& shape : kAugmentedShapes) {
    for (const auto* text : kAugmentations) {
      for (const bool by_row : {true, false}) {
        check_augmented<float>(device, shape, text, by_row);
        check_augmented<uint8_t>(device, shape, text, by_row);
      }
    }
  }
}

}  // namespace lockstep::testing
