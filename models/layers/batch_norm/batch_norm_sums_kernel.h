// Shared by batch_norm_forward_kernel.h and batch_norm_backward_kernel.h: a thread's place in (rows, c), and
// two sums over the rows of each channel in a fixed order. See support/cuda/kernel.h.
#pragma once

#include <initializer_list>

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

// Calls body(row) for each row of `at`, four rows at a time without a branch between them, so that their
// loads overlap.
template <int N, class Body>
__device__ void for_rows(const BatchNormPlace<N>& at, int64_t lines, const Body& body) {
  int64_t row = at.first;
  for (; row + 3 * lines < at.last; row += 4 * lines) {
    body(row);
    body(row + lines);
    body(row + 2 * lines);
    body(row + 3 * lines);
  }
  for (; row < at.last; row += lines) body(row);
}

template <int N, class T>
__device__ void load(const T* from, float (&values)[N]) {
  const auto vector = *reinterpret_cast<const Vector<T, N>*>(from);
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

// fold_partials() runs in blocks of kThreads threads: kFoldLanes channels, the chunks dealt over the lines.
inline constexpr int kFoldLanes = 8;

struct BatchNormSums {
  double a, b;
  int64_t channel;
  bool mine;  // this thread has the sums of a channel
};

__device__ inline BatchNormSums fold_partials(const float* partials, int64_t chunks, int64_t c) {
  constexpr int kLines = BatchNormTiles::kThreads / kFoldLanes;
  __shared__ double sums[2][BatchNormTiles::kThreads];
  const int lane = static_cast<int>(threadIdx.x) % kFoldLanes;
  const int line = static_cast<int>(threadIdx.x) / kFoldLanes;
  const int64_t channel = int64_t{blockIdx.x} * kFoldLanes + lane;
  double a = 0;
  double b = 0;
  if (channel < c) {
    for (int64_t chunk = line; chunk < chunks; chunk += kLines) {
      a += partials[chunk * c + channel];
      b += partials[(chunks + chunk) * c + channel];
    }
  }
  sums[0][threadIdx.x] = a;
  sums[1][threadIdx.x] = b;
  add_lines(sums, kFoldLanes);
  return {sums[0][threadIdx.x], sums[1][threadIdx.x], channel, line == 0 && channel < c};
}

// A vector width as a type.
template <int N>
struct VectorWidth {
  static constexpr int kWidth = N;
};

// Calls body(VectorWidth<N>): N fills a vector if the channels and the pointers' alignment allow it, else 1.
template <class T, class Body>
void with_vector_width(int64_t c, std::initializer_list<const void*> pointers, const Body& body) {
  constexpr int kWide = kVectorBytes / sizeof(T);
  bool wide = c % kWide == 0;
  for (const void* pointer : pointers) wide = wide && is_aligned(pointer, kVectorBytes);
  if (wide) {
    body(VectorWidth<kWide>{});
  } else {
    body(VectorWidth<1>{});
  }
}

inline dim3 grid_of(const BatchNormTiles& tiles) {
  return {static_cast<unsigned>(tiles.chunks), static_cast<unsigned>(tiles.tiles), 1};
}

inline dim3 fold_grid(int64_t c) { return {static_cast<unsigned>(ceil_div(c, kFoldLanes)), 1, 1}; }

// For kernels that write each element: a thread has enough rows to make loading its channels' coefficients
// cheap.
inline BatchNormTiles batch_norm_map_tiles(int64_t rows, int64_t c, int vector) {
  return batch_norm_tiles(rows, c, vector, /*rows_each=*/8, /*max_blocks=*/int64_t{1} << 30);
}

}  // namespace lockstep
