// The chapter's third exercise: different chunks are reduced on different devices.
//
// The chapter's own allreduce sends every replica's gradients to one device: its link carries (n-1) S bytes
// in and (n-1) S out while all others idle. Here rank i sums chunk i (S/n bytes from each of n-1 others) and
// hands the sum to the n-1 others: each rank moves 2 S (n-1)/n bytes, at the same time as all others.
// (Reduce-scatter and all-gather: R. Thakur et al., "Optimization of Collective Communication Operations in
// MPICH", 2005.) Nobody but rank i touches chunk i of any rank's tensor, so that no rank waits for another in
// between, and a processor does both halves in one pass, block by block in its core's first cache.
#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/parallel/collectives/local_round.h>

namespace lockstep {
namespace {

constexpr int64_t kBlock = 2048;  // elements: 8 kB of floats

// chunks[r] (n) is rank r's, all in the host's memory: each becomes ((c0 + c1) + c2) + ...
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

// The same with torch's operations, where devices have memories of their own.
void sum_on_device(const LocalRound& round) {
  const auto device = round.own().device();
  const auto theirs = [&](int other) { return round.chunk(other, round.rank).to(device); };
  auto sum = theirs(0) + theirs(1);
  for (int other = 2; other < round.world(); ++other) sum.add_(theirs(other));
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
