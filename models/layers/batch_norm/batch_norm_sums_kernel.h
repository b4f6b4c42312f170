// Shared by batch_norm_forward_kernel.h and batch_norm_backward_kernel.h: a thread's place in (rows, c), and
// two sums over the rows of each channel in a fixed order. See support/cuda/kernel.h.
#pragma once

#include <lockstep/models/layers/batch_norm/batch_norm_kernels.h>
#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

// A thread's place: channels channel .. channel + N - 1 of the rows first, first + lines, ... below last.
// inside: whether the channels are below c; a thread outside has no work.
template <int N>
struct BatchNormPlace {
  __device__ BatchNormPlace(const BatchNormTiles& tiles, int64_t rows, int64_t c)
      : lane(static_cast<int>(threadIdx.x) % tiles.lanes),
        line(static_cast<int>(threadIdx.x) / tiles.lanes),
        channel((int64_t{blockIdx.y} * tiles.lanes + lane) * N),
        first(int64_t{blockIdx.x} * tiles.chunk_rows + line),
        last(first - line + tiles.chunk_rows < rows ? first - line + tiles.chunk_rows : rows),
        inside(channel < c) {}

  int lane, line;
  int64_t channel, first, last;
  bool inside;
};

// Calls use(get(row)) for the rows first, first + step, ... below last, in this order. get() loads: it is
// called for kAtOnce rows before use(), so that their loads overlap.
template <int kAtOnce, class Get, class Use>
__device__ void for_rows(int64_t first, int64_t last, int64_t step, const Get& get, const Use& use) {
  int64_t row = first;
  for (; row + (kAtOnce - 1) * step < last; row += kAtOnce * step) {
    decltype(get(row)) loaded[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) loaded[i] = get(row + i * step);
    for (int i = 0; i < kAtOnce; ++i) use(loaded[i]);
  }
  for (; row < last; row += step) use(get(row));
}

template <int N, class T>
__device__ Vector<T, N> vector_at(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <int N, class T>
__device__ void load(const T* from, float (&values)[N]) {
  const auto vector = vector_at<N>(from);
  for (int k = 0; k < N; ++k) values[k] = to_float(vector.values[k]);
}

template <int N, class T>
__device__ void store(T* to, const float (&values)[N]) {
  Vector<T, N> vector;
  for (int k = 0; k < N; ++k) vector.values[k] = from_float<T>(values[k]);
  *reinterpret_cast<Vector<T, N>*>(to) = vector;
}

// Adds up `sums` over the lines of a block, pair by pair. A block's threads lie in lines of `lanes`; the
// results are in the threads of line 0. Thread t's k-th sum is at sums[k][t].
template <int K, class T>
__device__ void add_lines(T (&sums)[K][BatchNormTiles::kThreads], int lanes) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int half = BatchNormTiles::kThreads / 2; half >= lanes; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    for (int k = 0; k < K; ++k) sums[k][thread] += sums[k][thread + half];
  }
}

// Stores each block's sums of its chunk in partials (2, chunks, c).
template <int N>
__device__ void store_partials(const float (&a)[N], const float (&b)[N], const BatchNormPlace<N>& at,
                               const BatchNormTiles& tiles, int64_t c, float* partials) {
  __shared__ float sums[2 * N][BatchNormTiles::kThreads];
  for (int k = 0; k < N; ++k) {
    sums[k][threadIdx.x] = a[k];
    sums[N + k][threadIdx.x] = b[k];
  }
  add_lines(sums, tiles.lanes);
  if (at.line != 0 || !at.inside) return;
  float total_a[N], total_b[N];
  for (int k = 0; k < N; ++k) {
    total_a[k] = sums[k][threadIdx.x];
    total_b[k] = sums[N + k][threadIdx.x];
  }
  store(partials + blockIdx.x * c + at.channel, total_a);
  store(partials + (tiles.chunks + blockIdx.x) * c + at.channel, total_b);
}

// Returns true to all threads of one block: the last of `blocks` blocks to arrive at this counter. It sees
// what all of them have stored. The counter is 0 before and after, so that a kernel that is replayed finds it
// as it was. All threads of a block must call it.
__device__ inline bool arrives_last(unsigned* arrived, int64_t blocks) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence();  // the block's stores come before its arrival
    last = atomicAdd(arrived, 1u) + 1 == blocks;
    if (last) {
      __threadfence();  // loads from now on come after all arrivals
      atomicExch(arrived, 0u);
    }
  }
  return __syncthreads_or(last) != 0;
}

// Adds up partials (2, chunks, c) over the chunks for the channels of the block's tile, in double, in an
// order that depends on the tiles alone. Calls finish(channel, first sum, second sum) in one thread for each
// channel. N: width of the tiles' vectors. All threads of a block must call it.
template <int N, class Finish>
__device__ void fold_partials(const float* partials, const BatchNormTiles& tiles, int64_t c,
                              const Finish& finish) {
  constexpr int kEach = N == 1 ? 1 : 4;  // channels of a thread
  struct Partials {
    Vector<float, kEach> a, b;
  };
  __shared__ double sums[2 * kEach][BatchNormTiles::kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = tiles.lanes * N / kEach;
  const int64_t tile = int64_t{blockIdx.y} * tiles.lanes * N;
  const int64_t channel = tile + thread % lanes * kEach;
  double a[kEach] = {}, b[kEach] = {};
  const auto get = [&](int64_t chunk) {
    const float* from = partials + chunk * c + channel;
    return Partials{vector_at<kEach>(from), vector_at<kEach>(from + tiles.chunks * c)};
  };
  const auto add = [&](const Partials& loaded) {
    for (int k = 0; k < kEach; ++k) {
      a[k] += loaded.a.values[k];
      b[k] += loaded.b.values[k];
    }
  };
  const int64_t chunks = channel < c ? tiles.chunks : 0;
  for_rows<4>(thread / lanes, chunks, BatchNormTiles::kThreads / lanes, get, add);
  for (int k = 0; k < kEach; ++k) {
    sums[k][thread] = a[k];
    sums[kEach + k][thread] = b[k];
  }
  add_lines(sums, lanes);
  __syncthreads();
  if (thread >= lanes * kEach || tile + thread >= c) return;
  const int lane = thread / kEach;
  finish(tile + thread, sums[thread % kEach][lane], sums[kEach + thread % kEach][lane]);
}

// A vector width as a type.
template <int N>
struct VectorWidth {
  static constexpr int kWidth = N;
};

// Calls body(VectorWidth<N>), where N is batch_norm_vector() of T.
template <class T, class Body>
void with_vector_width(int64_t c, const Body& body) {
  constexpr int kWide = kVectorBytes / sizeof(T);
  if (batch_norm_vector(c, sizeof(T)) == kWide) {
    body(VectorWidth<kWide>{});
  } else {
    body(VectorWidth<1>{});
  }
}

inline dim3 grid_of(const BatchNormTiles& tiles) {
  return {static_cast<unsigned>(tiles.chunks), static_cast<unsigned>(tiles.tiles), 1};
}

// For kernels that write each element: a thread has enough rows to make loading its channels' coefficients
// cheap.
inline BatchNormTiles batch_norm_map_tiles(int64_t rows, int64_t c, int vector) {
  return batch_norm_tiles(rows, c, vector, /*max_lanes=*/32, /*rows_each=*/8,
                          /*max_blocks=*/int64_t{1} << 30);
}

}  // namespace lockstep
