// Runs CUDA kernels on the CPU: include this, then the header with the kernel. What a kernel may use of
// CUDA is below; anything else does not compile.
//
// - run_in_fibres() runs one CUDA thread after another, each up to its next __syncthreads or shuffle. It is
//   fast and deterministic. If a barrier is missing, the two orders of threads give different results.
// - run_in_threads() runs each CUDA thread of a block in a thread, for ThreadSanitizer, which sees accesses
//   that no barrier orders. (Shuffles order accesses here, but not on a GPU.)
//
// Both end the launch with EmulationError when threads of a block or warp miss a barrier or reach different
// ones. Whole warps must take part in shuffles and votes. Only one launch at a time per process, because
// __shared__ variables are static.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace lockstep::testing {

struct EmulationError : std::logic_error {
  using std::logic_error::logic_error;
};

// The order of threads and of blocks. kMixed: threads forward, blocks in an order unlike both.
enum class ThreadOrder { kForward, kBackward, kMixed };
enum class BlockTiming { kOneByOne, kAllAtOnce };  // the latter for kernels without __shared__ variables

// Calls `thread` for each CUDA thread. Rethrows the exception of a thread; throws EmulationError.
void run_in_fibres(dim3 grid, dim3 block, ThreadOrder order, const std::function<void()>& thread);
void run_in_threads(dim3 grid, dim3 block, BlockTiming timing, const std::function<void()>& thread);

// In place of CudaLaunch.
struct FibreLaunch {
  ThreadOrder order = ThreadOrder::kForward;

  template <class... Params, class... Args>
  void operator()(void (*kernel)(Params...), dim3 grid, dim3 block, Args... args) const {
    run_in_fibres(grid, block, order, [&] { kernel(static_cast<Params>(args)...); });
  }
};

struct ThreadLaunch {
  BlockTiming timing = BlockTiming::kOneByOne;

  template <class... Params, class... Args>
  void operator()(void (*kernel)(Params...), dim3 grid, dim3 block, Args... args) const {
    run_in_threads(grid, block, timing, [&] { kernel(static_cast<Params>(args)...); });
  }
};

inline constexpr int kWarpSize = 32;
enum class Group { kWarp, kBlock };

// A thread that has reached a barrier, and the place of the barrier.
struct Arrival {
  int thread;
  std::source_location where;
};

// Throws EmulationError unless both have reached the same barrier.
void check_same_barrier(Group group, const Arrival& first, const Arrival& other);
[[noreturn]] void throw_missing(Group group, const Arrival& first, int arrived, int wanted);

// How a block is run. The built-in functions below use it.
class BlockRunner {
 public:
  virtual ~BlockRunner() = default;
  // Returns when all threads of the calling thread's warp or block have called it.
  virtual void meet(Group group, const std::source_location& where) = 0;
  virtual uint64_t* slots() = 0;         // (32), for the calling thread's warp to exchange values in
  virtual int& votes() = 0;              // of the block; 0 between two votes
  virtual int warp_threads() const = 0;  // in the calling thread's warp
};

inline thread_local BlockRunner* current_block = nullptr;

// The coordinates of element `index` of a grid or block.
inline dim3 place(int64_t index, dim3 size) {
  const auto i = static_cast<unsigned>(index);
  return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}

inline int64_t count(dim3 size) { return int64_t{size.x} * size.y * size.z; }

inline int thread_in_block() {
  return static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}

// Returns the `value` of the thread `source(lane)` of the calling thread's warp.
template <class T, class Source>
T exchange(unsigned mask, T value, const Source& source, const std::source_location& where) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  if (mask != 0xffffffffu) throw EmulationError("a shuffle or vote of a part of a warp is not emulated");
  const int lane = thread_in_block() % kWarpSize;
  const int from = source(lane);
  std::memcpy(&current_block->slots()[lane], &value, sizeof(T));
  current_block->meet(Group::kWarp, where);
  if (from >= 0 && from < kWarpSize) {
    if (from >= current_block->warp_threads())
      throw EmulationError("a shuffle reads from a thread that is not there");
    std::memcpy(&value, &current_block->slots()[from], sizeof(T));
  }
  current_block->meet(Group::kWarp, where);
  return value;
}

}  // namespace lockstep::testing

namespace lockstep {

// In place of that of support/cuda/kernel_failure.h.
[[noreturn]] inline void fail_in_kernel(const char* words) { throw testing::EmulationError(words); }

}  // namespace lockstep

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  using namespace lockstep::testing;
  current_block->meet(Group::kBlock, where);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, int delta, int width = lockstep::testing::kWarpSize,
                   std::source_location where = std::source_location::current()) {
  return lockstep::testing::exchange(
      mask, value, [&](int lane) { return lane % width + delta < width ? lane + delta : lane; }, where);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = lockstep::testing::kWarpSize,
                  std::source_location where = std::source_location::current()) {
  return lockstep::testing::exchange(
      mask, value,
      [&](int lane) { return (lane ^ lane_mask) / width > lane / width ? lane : lane ^ lane_mask; }, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  unsigned votes = 0;
  for (int bit = lockstep::testing::kWarpSize; bit-- > 0;) {
    if (bit >= lockstep::testing::current_block->warp_threads()) continue;
    const bool vote = lockstep::testing::exchange(
        mask, predicate != 0, [&](int) { return bit; }, where);
    votes |= vote ? 1u << bit : 0u;
  }
  return votes;
}

inline int __any_sync(unsigned mask, int predicate,
                      std::source_location where = std::source_location::current()) {
  return __ballot_sync(mask, predicate, where) != 0;
}

template <class T>
T atomicAdd(T* address, T value) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T sum = old + value;
  while (!__atomic_compare_exchange(address, &old, &sum, /*weak=*/true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    sum = old + value;
  }
  return old;
}

template <class T>
T atomicExch(T* address, T value) {
  T old;
  __atomic_exchange(address, &value, &old, __ATOMIC_RELAXED);
  return old;
}

inline int __syncthreads_or(int predicate, std::source_location where = std::source_location::current()) {
  using namespace lockstep::testing;
  int& votes = current_block->votes();
  if (predicate != 0) atomicAdd(&votes, 1);
  current_block->meet(Group::kBlock, where);
  const int found = __atomic_load_n(&votes, __ATOMIC_RELAXED);
  current_block->meet(Group::kBlock, where);
  if (predicate != 0) atomicAdd(&votes, -1);
  return found != 0;
}

// ThreadSanitizer, which does not know fences, sees each call before the later ones.
inline void __threadfence() {
  static std::atomic<int> fences;
  fences.fetch_add(1, std::memory_order_acq_rel);
}
