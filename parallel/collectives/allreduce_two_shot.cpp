// Two-shot allreduce: reduce-scatter, then all-gather. It answers the chapter's third exercise: reduce
// different chunks on different devices.
//
// The chapter's allreduce sends every replica's gradients (S bytes) to one device: its link carries (n-1) S
// bytes in and (n-1) S out while all others idle. Here rank i sums chunk i (S/n bytes from each of n-1 other
// ranks) and copies the sum to the n-1 others: each rank moves 2 S (n-1)/n bytes, all ranks at the same time.
// Only rank i touches chunk i of any rank's tensor, so no rank waits for another in between. On a CPU both
// halves are one pass, block by block in the core's L1 cache.
// (R. Thakur et al., "Optimization of Collective Communication Operations in MPICH", 2005.)
#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {
namespace {

constexpr int64_t kBlock = 2048;  // elements: 8 kB of floats

// chunks[r] (n): rank r's chunk in host memory. Each becomes ((c0 + c1) + c2) + ...
template <class T>
void sum_to_all(const std::vector<T*>& chunks, int64_t n) {
  std::array<T, kBlock> sum;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const auto size = std::min(kBlock, n - begin);
    std::copy_n(chunks[0] + begin, size, sum.data());
    for (size_t other = 1; other < chunks.size(); ++other) {
      const T* next = chunks[other] + begin;
      for (int64_t i = 0; i < size; ++i) sum[static_cast<size_t>(i)] += next[i];
    }
    for (T* chunk : chunks) std::copy_n(sum.data(), size, chunk + begin);
  }
}

void sum_on_host(const LocalRound& round) {
  const auto own = round.chunk(round.rank, round.rank);
  AT_DISPATCH_ALL_TYPES_AND2(torch::kHalf, torch::kBFloat16, own.scalar_type(), "allreduce_two_shot", [&] {
    std::vector<scalar_t*> chunks;
    for (int other = 0; other < round.world(); ++other) {
      chunks.push_back(round.chunk(other, round.rank).mutable_data_ptr<scalar_t>());
    }
    sum_to_all(chunks, own.numel());
  });
}

// The same with torch's operations, for devices with their own memory.
void sum_on_device(const LocalRound& round) {
  const auto device = round.own().device();
  const auto chunk_of = [&](int other) { return round.chunk(other, round.rank).to(device); };
  auto sum = chunk_of(0) + chunk_of(1);
  for (int other = 2; other < round.world(); ++other) sum.add_(chunk_of(other));
  for (int other = 0; other < round.world(); ++other) round.chunk(other, round.rank).copy_(sum);
}

}  // namespace

void allreduce_two_shot(const LocalRound& round) {
  if (round.world() == 1) return;
  const bool on_host = std::all_of(round.tensors.begin(), round.tensors.end(),
                                   [](const auto& tensor) { return tensor.is_cpu(); });
  if (on_host)
    sum_on_host(round);
  else
    sum_on_device(round);
}

}  // namespace lockstep
