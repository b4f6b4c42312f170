#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

namespace lockstep::testing {
namespace {

// Ends the waiting threads after another one has failed.
struct Abandoned {};

// A barrier for the threads of one warp or block. Each has a mutex of its own and the counts of the whole
// block are relaxed, so that ThreadSanitizer sees no order but that of the barriers.
struct Barrier {
  std::mutex mutex;
  std::condition_variable released;
  int wanted = 0;
  int arrived = 0;
  int64_t generation = 0;
  Arrival first{};
};

class ThreadBlock : public BlockRunner {
 public:
  explicit ThreadBlock(dim3 block)
      : size_(block),
        threads_(static_cast<int>(count(block))),
        slots_(static_cast<size_t>((threads_ + kWarpSize - 1) / kWarpSize) * kWarpSize) {
    block_.wanted = threads_;
    for (int first = 0; first < threads_; first += kWarpSize) {
      warps_.emplace_back().wanted = std::min(kWarpSize, threads_ - first);
    }
  }

  // Runs the CUDA thread `index` of this block in the calling thread.
  void run(int index, dim3 block_index, dim3 grid, const std::function<void()>& thread) {
    blockIdx = block_index;
    gridDim = grid;
    blockDim = size_;
    threadIdx = place(index, size_);
    current_block = this;
    try {
      thread();
    } catch (const Abandoned&) {
    } catch (...) {
      fail(std::current_exception());
    }
    if (idle_and_ended_.fetch_add(kIdle + kEnded, std::memory_order_relaxed) % kEnded == threads_ - 1) {
      check_all_met();
    }
  }

  void meet(Group group, const std::source_location& where) override {
    auto& barrier = group == Group::kBlock ? block_ : own_warp();
    std::unique_lock lock(barrier.mutex);
    if (failed_.load(std::memory_order_relaxed)) throw Abandoned{};
    const Arrival own{thread_in_block(), where};
    if (barrier.arrived == 0) barrier.first = own;
    check_same_barrier(group, barrier.first, own);
    if (++barrier.arrived == barrier.wanted) {
      idle_and_ended_.fetch_sub(barrier.wanted - 1, std::memory_order_relaxed);
      barrier.arrived = 0;
      ++barrier.generation;
      barrier.released.notify_all();
      return;
    }
    if (idle_and_ended_.fetch_add(kIdle, std::memory_order_relaxed) % kEnded == threads_ - 1) {
      lock.unlock();
      check_all_met();
      lock.lock();
    }
    barrier.released.wait(lock, [&, generation = barrier.generation] {
      return barrier.generation != generation || failed_.load(std::memory_order_relaxed);
    });
    if (failed_.load(std::memory_order_relaxed)) throw Abandoned{};
  }

  uint64_t* slots() override {
    return &slots_[static_cast<size_t>(thread_in_block() / kWarpSize) * kWarpSize];
  }

  int& votes() override { return votes_; }

  int warp_threads() const override {
    return warps_[static_cast<size_t>(thread_in_block() / kWarpSize)].wanted;
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // The number of threads that wait or have ended and the number that have ended, in one atomic number.
  static constexpr int64_t kIdle = 1;
  static constexpr int64_t kEnded = int64_t{1} << 32;

  Barrier& own_warp() { return warps_[static_cast<size_t>(thread_in_block() / kWarpSize)]; }

  // Called when no thread runs any more: all must have ended.
  void check_all_met() {
    if (idle_and_ended_.load(std::memory_order_relaxed) / kEnded == threads_) return;
    const auto look = [&](Group group, Barrier& barrier) {
      const std::scoped_lock lock(barrier.mutex);
      if (barrier.arrived > 0) throw_missing(group, barrier.first, barrier.arrived, barrier.wanted);
    };
    try {
      for (auto& warp : warps_) look(Group::kWarp, warp);
      look(Group::kBlock, block_);
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void fail(const std::exception_ptr& error) {
    {
      const std::scoped_lock lock(error_mutex_);
      if (!error_) error_ = error;
    }
    failed_.store(true, std::memory_order_relaxed);
    for (auto& warp : warps_) wake(warp);
    wake(block_);
  }

  static void wake(Barrier& barrier) {
    const std::scoped_lock lock(barrier.mutex);  // so that no thread is between its check and its wait
    barrier.released.notify_all();
  }

  const dim3 size_;
  const int threads_;
  std::vector<uint64_t> slots_;
  int votes_ = 0;
  std::deque<Barrier> warps_;
  Barrier block_;
  std::atomic<int64_t> idle_and_ended_{0};
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// Runs blocks [first, last) of the grid at the same time.
void run_blocks(int64_t first, int64_t last, dim3 grid, dim3 block, const std::function<void()>& thread) {
  std::deque<ThreadBlock> blocks;
  {
    std::vector<std::jthread> threads;
    for (int64_t b = first; b < last; ++b) {
      auto& runner = blocks.emplace_back(block);
      for (int i = 0; i < static_cast<int>(count(block)); ++i) {
        threads.emplace_back([&runner, &thread, i, b, grid] { runner.run(i, place(b, grid), grid, thread); });
      }
    }
  }
  for (const auto& runner : blocks) runner.rethrow();
}

}  // namespace

void run_in_threads(dim3 grid, dim3 block, BlockTiming timing, const std::function<void()>& thread) {
  const int64_t blocks = count(grid);
  const int64_t step = timing == BlockTiming::kAllAtOnce ? blocks : 1;
  for (int64_t first = 0; first < blocks; first += step) run_blocks(first, first + step, grid, block, thread);
}

}  // namespace lockstep::testing
