#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>
#include <lockstep/tests/support/cuda_emulation/fibre.h>

namespace lockstep::testing {
namespace {

// Runs the threads of one block one after another. A fibre runs threads until one has to wait, so a kernel
// without barriers needs only one fibre.
class FibreBlock : public BlockRunner {
 public:
  FibreBlock() = default;
  ~FibreBlock() override {
    ended_ = true;
    for (auto* fibre : idle_) fibre->resume();
  }
  FibreBlock(const FibreBlock&) = delete;
  FibreBlock& operator=(const FibreBlock&) = delete;

  void start_launch(dim3 block, ThreadOrder order, const std::function<void()>& thread) {
    size_ = block;
    threads_ = static_cast<int>(count(block));
    order_ = order;
    thread_ = &thread;
    const auto warps = static_cast<size_t>((threads_ + kWarpSize - 1) / kWarpSize);
    slots_.assign(warps * kWarpSize, 0);
    warps_.resize(warps);
    votes_ = 0;
    blockDim = block;
  }

  void run_block() {
    next_ = 0;
    while (!error_ && (next_ < threads_ || !ready_.empty())) {
      if (next_ < threads_) {
        running_ = idle_fibre();
      } else {
        running_ = ready_.front().fibre;
        thread_index_ = ready_.front().arrival.thread;
        threadIdx = place(thread_index_, size_);
        ready_.pop_front();
      }
      running_->resume();
    }
    check_all_met();
  }

  void meet(Group group, const std::source_location& where) override {
    auto& waiting = group == Group::kBlock ? block_ : warps_[static_cast<size_t>(thread_index_ / kWarpSize)];
    const int wanted = group == Group::kBlock ? threads_ : warp_threads();
    if (!waiting.empty()) check_same_barrier(group, waiting[0].arrival, {thread_index_, where});
    waiting.push_back({running_, {thread_index_, where}});
    if (static_cast<int>(waiting.size()) == wanted) {
      ready_.insert(ready_.end(), waiting.begin(), waiting.end());
      waiting.clear();
    }
    running_->suspend();
  }

  uint64_t* slots() override { return &slots_[static_cast<size_t>(thread_index_ / kWarpSize) * kWarpSize]; }

  int& votes() override { return votes_; }

  int warp_threads() const override {
    return std::min(kWarpSize, threads_ - thread_index_ / kWarpSize * kWarpSize);
  }

 private:
  struct Waiting {
    Fibre* fibre;
    Arrival arrival;
  };

  Fibre* idle_fibre() {
    if (idle_.empty()) {
      fibres_.push_back(std::make_unique<Fibre>([this, self = fibres_.size()] { run_threads(self); }));
      return fibres_.back().get();
    }
    auto* fibre = idle_.back();
    idle_.pop_back();
    return fibre;
  }

  // The body of a fibre.
  void run_threads(size_t self) {
    while (!ended_) {
      while (!error_ && next_ < threads_) {
        const int i = next_++;
        thread_index_ = order_ == ThreadOrder::kBackward ? threads_ - 1 - i : i;
        threadIdx = place(thread_index_, size_);
        try {
          (*thread_)();
        } catch (...) {
          error_ = std::current_exception();
        }
      }
      idle_.push_back(fibres_[self].get());
      fibres_[self]->suspend();
    }
  }

  void check_all_met() {
    if (error_) std::rethrow_exception(error_);
    for (const auto& warp : warps_) {
      if (warp.empty()) continue;
      thread_index_ = warp[0].arrival.thread;
      throw_missing(Group::kWarp, warp[0].arrival, static_cast<int>(warp.size()), warp_threads());
    }
    if (!block_.empty()) {
      throw_missing(Group::kBlock, block_[0].arrival, static_cast<int>(block_.size()), threads_);
    }
  }

  dim3 size_;
  int threads_ = 0;
  ThreadOrder order_ = ThreadOrder::kForward;
  const std::function<void()>* thread_ = nullptr;
  std::vector<uint64_t> slots_;
  int votes_ = 0;
  std::vector<std::vector<Waiting>> warps_;
  std::vector<Waiting> block_;
  std::deque<Waiting> ready_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> idle_;
  Fibre* running_ = nullptr;
  int thread_index_ = 0;
  int next_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
};

// Returns which of `blocks` blocks runs as number i.
int64_t block_at(int64_t i, int64_t blocks, ThreadOrder order) {
  if (order == ThreadOrder::kForward) return i;
  if (order == ThreadOrder::kBackward) return blocks - 1 - i;
  int64_t step = blocks / 2 + 1;
  while (std::gcd(step, blocks) != 1) ++step;
  return (i + 1) * step % blocks;
}

}  // namespace

void run_in_fibres(dim3 grid, dim3 block, ThreadOrder order, const std::function<void()>& thread) {
  // Kept with its fibres for the next launch, but not after an error, which leaves fibres inside a kernel.
  thread_local std::unique_ptr<FibreBlock> spare;
  auto runner = spare ? std::move(spare) : std::make_unique<FibreBlock>();
  runner->start_launch(block, order, thread);
  gridDim = grid;
  current_block = runner.get();
  const int64_t blocks = count(grid);
  for (int64_t i = 0; i < blocks; ++i) {
    blockIdx = place(block_at(i, blocks, order), grid);
    runner->run_block();
  }
  current_block = nullptr;
  spare = std::move(runner);
}

}  // namespace lockstep::testing
