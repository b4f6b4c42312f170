// The functions of a LeNetLayers table for the capability whose source includes this header.
#pragma once

#include <lockstep/models/layers/cpu/lenet/conv_pool.h>
#include <lockstep/models/layers/cpu/lenet/conv_pool_winograd.h>
#include <lockstep/models/layers/cpu/lenet/head_inline.h>
#include <lockstep/models/layers/cpu/lenet/layers.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

using Layer1 = ConvPool</*in=*/1, /*out=*/20, /*side=*/28, /*window=*/3, /*pooled=*/12>;
using Layer2 = ConvPool<20, 50, 12, 5, 4>;
// A block of the first layer's channels: the gradient of all its outputs would not fit into the second-level
// cache.
using Layer1Block = ConvPool<1, kBlock, 28, 3, 12>;

inline constexpr int kConv2 = Layer2::kOut * Layer2::kRow * Layer2::kRow;
inline constexpr int kConv1Block = kBlock * Layer1::kRow * Layer1::kRow;

// Offsets in the sums.
inline constexpr int kSumsOfb1 = Layer1::kOut * Layer1::kFilter;
inline constexpr int kSumsOfb2 = kSumsOfb1 + Layer1::kOut;
inline constexpr int kSumsOfW2 = kSumsOfb2 + Layer2::kOut;

template <class T>
Lanes<T>* lanes_at(T* memory) {
  return reinterpret_cast<Lanes<T>*>(memory);
}
inline Bytes* bytes_at(uint8_t* memory) { return reinterpret_cast<Bytes*>(memory); }

// Second: DirectConvPool or WinogradConvPool, for the second layer.
template <class T, class Second>
void lenet_forward(const T* images, int rows, const LeNetFilters<T>& filters, const LeNetKept<T>& kept,
                   T* scratch, T* features) {
  auto* x = lanes_at(kept.images);
  auto* pooled1 = lanes_at(kept.pooled1);
  auto* pooled2 = lanes_at(scratch);
  into_lanes<T>(images, rows, LeNetSizes::kImage, x);
  conv_pool<T, Layer1>(x, filters.W1, filters.b1, pooled1, bytes_at(kept.signs1));
  Second::forward(pooled1, filters.W2, filters.transformed, filters.b2, pooled2, bytes_at(kept.signs2),
                  pooled2 + LeNetSizes::kFeatures);
  from_lanes<T>(pooled2, rows, LeNetSizes::kFeatures, features);
}

template <class T, class Second>
void lenet_backward(const T* dfeatures, int64_t rows, const LeNetFilters<T>& filters,
                    const LeNetKept<T>& kept, LeNetWanted wanted, T* scratch, T* sums) {
  const int groups = static_cast<int>((rows + kLanes - 1) / kLanes);
  auto* dpooled2 = lanes_at(scratch);
  auto* dconv2 = dpooled2 + LeNetSizes::kFeatures;
  auto* dpooled1 = dconv2 + kGroups * kConv2;
  auto* dconv1 = dpooled1 + LeNetSizes::kPooled1;
  auto* scratch2 = dconv1 + kConv1Block;

  for (int group = 0; group < groups; ++group) {
    const int64_t first = static_cast<int64_t>(group) * kLanes;
    const int count = rows - first < kLanes ? static_cast<int>(rows - first) : kLanes;
    into_lanes<T>(dfeatures + first * LeNetSizes::kFeatures, count, LeNetSizes::kFeatures, dpooled2);
    unpool<T, Layer2>(dpooled2, bytes_at(kept.signs2) + group * LeNetSizes::kFeatures,
                      dconv2 + group * kConv2, sums + kSumsOfb2);
  }
  Second::backward(lanes_at(kept.pooled1), dconv2, groups, filters.transformed, wanted, sums + kSumsOfW2,
                   scratch2);
  if (!wanted.layer1) return;

  constexpr int kCells = Layer1::kPooled * Layer1::kPooled;
  for (int group = 0; group < groups; ++group) {
    const auto* x = lanes_at(kept.images) + group * LeNetSizes::kImage;
    Second::input_gradient(group, dconv2, filters.W2, scratch2, dpooled1);
    for (int o = 0; o < Layer1::kOut; o += kBlock) {
      const auto* signs = bytes_at(kept.signs1) + group * LeNetSizes::kPooled1 + o * kCells;
      unpool<T, Layer1Block>(dpooled1 + o * kCells, signs, dconv1, sums + kSumsOfb1 + o);
      add_filter_gradient<T, Layer1Block>(x, dconv1, 1, sums + o * Layer1::kFilter);
    }
  }
}

template <class T, class Second>
void lenet_gradients(const T* sums, const LeNetFilterGradients<T>& gradients) {
  for (int i = 0; i < kSumsOfb1; ++i) gradients.W1[i] = sums[i];
  for (int i = 0; i < Layer1::kOut; ++i) gradients.b1[i] = sums[kSumsOfb1 + i];
  for (int i = 0; i < Layer2::kOut; ++i) gradients.b2[i] = sums[kSumsOfb2 + i];
  Second::filter_gradient(sums + kSumsOfW2, gradients.W2);
}

template <class T, class Second>
constexpr LeNetLayers<T> make_lenet_layers() {
  constexpr int kForward = LeNetSizes::kFeatures + Second::kForwardScratch;
  constexpr int kBackward = LeNetSizes::kFeatures + kGroups * kConv2 + LeNetSizes::kPooled1 + kConv1Block +
                            Second::kBackwardScratch;
  return {.lanes = kLanes,
          .most_groups = kGroups,
          .scratch = int64_t{kForward > kBackward ? kForward : kBackward} * kLanes,
          .transformed = Second::kTransformed,
          .sums = kSumsOfW2 + Second::kSums,
          .head_scratch = Head<T>::kScratch,
          .transform = Second::transform,
          .forward = lenet_forward<T, Second>,
          .backward = lenet_backward<T, Second>,
          .gradients = lenet_gradients<T, Second>,
          .head_forward = Head<T>::forward,
          .head_backward = Head<T>::backward,
          .transpose_matrix = transpose_matrix<T>};
}

template <class T>
inline constexpr LeNetLayers<T> kDirectLeNetLayers = make_lenet_layers<T, DirectConvPool<T, Layer2>>();
template <class T>
inline constexpr LeNetLayers<T> kWinogradLeNetLayers = make_lenet_layers<T, WinogradConvPool<T, Layer2>>();

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
