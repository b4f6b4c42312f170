// The kernel of flat_fill.h. support/cuda/kernel.h explains how such headers are compiled.
#pragma once

#include <algorithm>
#include <cstddef>

#include <lockstep/parallel/gradients/flat_fill.h>
#include <lockstep/support/bf16.h>
#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

// The arguments of one launch. They have to fit into 4 KB.
template <class T>
struct FlatPieces {
  static constexpr int kMost = 96;

  FlatPiece<T> pieces[kMost];
  unsigned first_block[kMost];  // of each piece
  int count;
};
static_assert(sizeof(FlatPieces<double>) <= 4096 && FlatPieces<double>::kMost <= 128);

inline constexpr int kFlatFillThreads = 256;
inline constexpr int64_t kFlatFillElements = 4096;  // of a piece, for each block

// The last piece that begins at this block or before it. One without elements has no block.
template <class T>
__device__ int flat_piece_of(const FlatPieces<T>& list, unsigned block) {
  int found = 0;
  for (int step = 64; step > 0; step /= 2) {
    if (found + step < list.count && list.first_block[found + step] <= block) found += step;
  }
  return found;
}

template <class T>
__device__ T flat_number(T value) {
  return T{0} + value;
}

template <class T>
__device__ T flat_number(Bf16 value) {
  return T{0} + static_cast<T>(to_float(value));
}

// Elements [begin, end) by all threads of a block, N at a time. One thread at most has a shorter rest.
template <int N, class From, class T>
__device__ void flat_fill_range(const From* from, T* to, int64_t begin, int64_t end) {
  int64_t i = begin + int64_t{threadIdx.x} * N;
  for (; i + N <= end; i += int64_t{blockDim.x} * N) {
    const auto given = *reinterpret_cast<const Vector<From, N>*>(from + i);
    Vector<T, N> numbers;
    for (int k = 0; k < N; ++k) numbers.values[k] = flat_number<T>(given.values[k]);
    *reinterpret_cast<Vector<T, N>*>(to + i) = numbers;
  }
  for (; i < end; ++i) to[i] = flat_number<T>(from[i]);
}

// By vectors where both begin at a multiple of 16 bytes.
template <class From, class T>
__device__ void flat_fill_from(const From* from, T* to, int64_t begin, int64_t end) {
  constexpr int kWide = kVectorBytes / sizeof(From);
  const auto places = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  if (places % kVectorBytes == 0) {
    flat_fill_range<kWide>(from, to, begin, end);
  } else {
    flat_fill_range<1>(from, to, begin, end);
  }
}

template <class T>
__global__ void flat_fill_kernel(FlatPieces<T> list) {
  const int index = flat_piece_of(list, blockIdx.x);
  const FlatPiece<T> piece = list.pieces[index];
  const int64_t begin = int64_t{blockIdx.x - list.first_block[index]} * kFlatFillElements;
  const int64_t end = begin + kFlatFillElements < piece.size ? begin + kFlatFillElements : piece.size;
  if (piece.from == nullptr) {
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) piece.to[i] = 0;
  } else if (piece.from_bf16) {
    flat_fill_from(static_cast<const Bf16*>(piece.from), piece.to, begin, end);
  } else {
    flat_fill_from(static_cast<const T*>(piece.from), piece.to, begin, end);
  }
}

template <class Launch, class T>
void fill_flat_with(const Launch& launch, std::span<const FlatPiece<T>> pieces) {
  while (!pieces.empty()) {
    FlatPieces<T> list{};
    const auto count = std::min(pieces.size(), static_cast<size_t>(FlatPieces<T>::kMost));
    int64_t blocks = 0;
    for (size_t i = 0; i < count; ++i) {
      list.pieces[i] = pieces[i];
      list.first_block[i] = static_cast<unsigned>(blocks);
      blocks += ceil_div(pieces[i].size, kFlatFillElements);
    }
    list.count = static_cast<int>(count);
    pieces = pieces.subspan(count);
    if (blocks == 0) continue;
    launch(flat_fill_kernel<T>, dim3{static_cast<unsigned>(blocks), 1, 1}, dim3{kFlatFillThreads, 1, 1},
           list);
  }
}

}  // namespace lockstep
