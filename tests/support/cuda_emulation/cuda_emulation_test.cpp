// The emulation of CUDA: results against hand calculations, and errors that it must detect.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <numeric>
#include <vector>

using namespace lockstep::testing;

namespace {

using Launch = std::function<void(dim3 grid, dim3 block, const std::function<void()>& thread)>;

Launch in_fibres(ThreadOrder order) {
  return [order](dim3 grid, dim3 block, const auto& thread) { run_in_fibres(grid, block, order, thread); };
}

const std::vector<Launch> kAllWays = {in_fibres(ThreadOrder::kForward), in_fibres(ThreadOrder::kBackward),
                                      in_fibres(ThreadOrder::kMixed),
                                      [](dim3 grid, dim3 block, const auto& thread) {
                                        run_in_threads(grid, block, BlockTiming::kOneByOne, thread);
                                      }};

int global_index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// sums[b] = the sum of block b's values; block size 96. `barrier` false leaves a needed barrier out.
void sum_blocks(const int* values, int* sums, bool barrier) {
  __shared__ int warps[3];
  int sum = values[global_index()];
  for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xffffffffu, sum, delta);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = warps[0] + warps[1] + warps[2];
  __syncthreads();  // before the next block writes warps
}

void two_barriers() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

std::vector<int> values_of(int n) {
  std::vector<int> values(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) values[static_cast<size_t>(i)] = (i * 37) % 101;
  return values;
}

std::vector<int> sums_of_blocks(const Launch& launch, bool barrier) {
  const auto values = values_of(5 * 96);
  std::vector<int> sums(5);
  launch({5}, {96}, [&] { sum_blocks(values.data(), sums.data(), barrier); });
  return sums;
}

}  // namespace

TEST_CASE("each thread of a three-dimensional launch runs once with its own indices") {
  for (const auto& launch : kAllWays) {
    std::vector<int> seen(2 * 3 * 2 * 4 * 3 * 2);
    int wrong = 0;
    launch({2, 3, 2}, {4, 3, 2}, [&] {
      const bool grid = gridDim.x == 2 && gridDim.y == 3 && gridDim.z == 2;
      const bool block_size = blockDim.x == 4 && blockDim.y == 3 && blockDim.z == 2;
      atomicAdd(&wrong, grid && block_size ? 0 : 1);
      const unsigned block = (blockIdx.z * 3 + blockIdx.y) * 2 + blockIdx.x;
      ++seen[block * 24 + (threadIdx.z * 3 + threadIdx.y) * 4 + threadIdx.x];
    });
    CHECK(seen == std::vector<int>(seen.size(), 1));
    CHECK(wrong == 0);
  }
}

TEST_CASE("shuffles and shared memory sum over blocks") {
  const auto values = values_of(5 * 96);
  std::vector<int> expected;
  for (auto block = values.begin(); block != values.end(); block += 96) {
    expected.push_back(std::accumulate(block, block + 96, 0));
  }
  for (const auto& launch : kAllWays) CHECK(sums_of_blocks(launch, true) == expected);
}

TEST_CASE("without a barrier one of the two orders gives another result") {
  const auto right = sums_of_blocks(in_fibres(ThreadOrder::kForward), true);
  const bool forward = sums_of_blocks(in_fibres(ThreadOrder::kForward), false) == right;
  const bool backward = sums_of_blocks(in_fibres(ThreadOrder::kBackward), false) == right;
  CHECK_FALSE((forward && backward));
}

TEST_CASE("shuffles, votes and atomic sums") {
  for (const auto& launch : kAllWays) {
    std::vector<int> down(64), butterfly(64), narrow(64), any(64);
    std::vector<unsigned> ballot(64);
    float sum = 0;
    launch({1}, {64}, [&] {
      const int i = global_index();
      const auto at = static_cast<size_t>(i);
      down[at] = __shfl_down_sync(0xffffffffu, i, 5);
      narrow[at] = __shfl_down_sync(0xffffffffu, i, 3, 8);
      int total = i;
      for (int mask = 16; mask > 0; mask /= 2) total += __shfl_xor_sync(0xffffffffu, total, mask);
      butterfly[at] = total;
      ballot[at] = __ballot_sync(0xffffffffu, i % 3 == 0);
      any[at] = __any_sync(0xffffffffu, i == 40);
      atomicAdd(&sum, static_cast<float>(i));
    });
    for (int i = 0; i < 64; ++i) {
      const auto at = static_cast<size_t>(i);
      CHECK(down[at] == (i % 32 + 5 < 32 ? i + 5 : i));
      CHECK(narrow[at] == (i % 8 + 3 < 8 ? i + 3 : i));
      CHECK(butterfly[at] == (i < 32 ? 31 * 32 / 2 : 31 * 32 / 2 + 32 * 32));
      CHECK(ballot[at] == (i < 32 ? 0x49249249u : 0x92492492u));  // 0, 3, ... 30 and 33, 36, ... 63
      CHECK(any[at] == (i >= 32));
    }
    CHECK(sum == 63 * 64 / 2);
  }
}

TEST_CASE("a block votes at a barrier, again and again") {
  for (const auto& launch : kAllWays) {
    std::vector<int> wrong(3 * 64);
    launch({3}, {64}, [&] {
      for (unsigned round = 0; round < 64; ++round) {
        const bool expected = round % 3 != 0;  // one thread votes, or none
        const int found = __syncthreads_or(expected && threadIdx.x == (round * 7 + blockIdx.x) % 64);
        wrong[static_cast<size_t>(global_index())] += (found != 0) != expected;
      }
    });
    CHECK(wrong == std::vector<int>(wrong.size()));
  }
}

TEST_CASE("a mixed order runs every block once, and is neither forward nor backward") {
  for (const unsigned blocks : {1u, 2u, 7u, 12u, 60u}) {
    std::vector<unsigned> order;
    run_in_fibres({blocks}, {1}, ThreadOrder::kMixed, [&] { order.push_back(blockIdx.x); });
    if (blocks >= 7) {
      CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
      CHECK_FALSE(std::is_sorted(order.rbegin(), order.rend()));
    }
    std::sort(order.begin(), order.end());
    REQUIRE(order.size() == blocks);
    for (unsigned i = 0; i < blocks; ++i) CHECK(order[i] == i);
  }
}

TEST_CASE("an exchange gives the number before") {
  unsigned number = 3;
  unsigned before = 0;
  run_in_fibres({1}, {1}, ThreadOrder::kForward, [&] { before = atomicExch(&number, 5u); });
  CHECK(before == 3);
  CHECK(number == 5);
}

TEST_CASE("a barrier that some threads miss ends the launch") {
  for (const auto& launch : kAllWays) {
    CHECK_THROWS_WITH(launch({2}, {64},
                             [] {
                               if (threadIdx.x != 7) __syncthreads();
                             }),
                      Catch::Matchers::ContainsSubstring("63 of 64 threads of a block wait at") &&
                          Catch::Matchers::ContainsSubstring("the others never come"));
    CHECK_THROWS_WITH(launch({1}, {40},
                             [] {
                               if (threadIdx.x > 34) __shfl_down_sync(0xffffffffu, 1, 1);
                             }),
                      Catch::Matchers::ContainsSubstring("5 of 8 threads of a warp wait at"));
    CHECK_THROWS_WITH(launch({1}, {64}, two_barriers),
                      Catch::Matchers::ContainsSubstring("wait at different places"));
    CHECK_THROWS_WITH(launch({1}, {64},
                             [] {
                               if (threadIdx.x < 3) {
                                 __syncthreads();
                               } else {
                                 __any_sync(0xffffffffu, 1);
                               }
                             }),
                      Catch::Matchers::ContainsSubstring("the others never come"));
  }
}

TEST_CASE("a shuffle of half a warp and a read from a missing thread are refused") {
  for (const auto& launch : kAllWays) {
    CHECK_THROWS_WITH(launch({1}, {32}, [] { __shfl_xor_sync(0xffffu, 1, 1); }),
                      Catch::Matchers::ContainsSubstring("a part of a warp"));
    CHECK_THROWS_WITH(launch({1}, {33}, [] { __shfl_down_sync(0xffffffffu, 1, 1); }),
                      Catch::Matchers::ContainsSubstring("not there"));
  }
}

TEST_CASE("a thread's exception is rethrown by the launch, and the next launch works") {
  for (const auto& launch : kAllWays) {
    CHECK_THROWS_WITH(launch({3}, {64},
                             [] {
                               if (blockIdx.x == 1 && threadIdx.x == 5) throw std::runtime_error("thread 5");
                               __syncthreads();
                             }),
                      "thread 5");
    int count = 0;
    launch({1}, {64}, [&] { atomicAdd(&count, 1); });
    CHECK(count == 64);
  }
}

TEST_CASE("blocks of a kernel without shared memory run at the same time") {
  std::vector<int> seen(4 * 32);
  run_in_threads({4}, {32}, BlockTiming::kAllAtOnce, [&] { ++seen[static_cast<size_t>(global_index())]; });
  CHECK(seen == std::vector<int>(seen.size(), 1));
}
