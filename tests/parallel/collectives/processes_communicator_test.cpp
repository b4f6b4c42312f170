// Results of collectives between the replicas of several processes. processes_posting_test.cpp tests when
// they are posted, processes_errors_test.cpp their errors.
#include <lockstep/tests/catch.h>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/parallel/collectives/sum_by_hand.h>

using namespace lockstep;
using namespace lockstep::testing;
using torch::kBFloat16;
using torch::kFloat32;
using torch::kFloat64;
using torch::kInt64;

namespace {

constexpr torch::ScalarType kTypes[] = {kFloat32, kFloat64, kBFloat16, kInt64};

// The tensors of one collective, for all ranks of all processes.
struct Case {
  int64_t n;
  torch::ScalarType dtype;
  int root;
  Tensors tensors;
  Tensors gathered = {};
};

std::vector<Case> cases_of(int world, const std::vector<int64_t>& sizes, int root = 0) {
  std::vector<Case> cases;
  for (const auto n : sizes) {
    for (const auto dtype : kTypes) cases.push_back({n, dtype, root, inputs(world, n, dtype)});
  }
  return cases;
}

}  // namespace

TEST_CASE("sums over several processes are exact, with the same bits on every rank") {
  for (const auto& layout : kLayouts) {
    const int world = world_of(layout);
    const auto cases = cases_of(world, {0, 1, world - 1, world, 7, 997, 100'000});
    in_processes(layout, [&](int, Communicator& communicator) {
      for (const auto& one : cases) allreduce_all(communicator, one.tensors);
    });
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas, " << one.n << " of " << one.dtype);
      CHECK(all_are(sum_by_hand(world, one.n, one.dtype), one.tensors));
    }
  }
}

TEST_CASE("broadcast from every rank reaches every process") {
  for (const auto& layout : kLayouts) {
    const int world = world_of(layout);
    std::vector<Case> cases;
    for (int root = 0; root < world; ++root) {
      for (auto& one : cases_of(world, {0, 1, world - 1, 997}, root)) cases.push_back(std::move(one));
    }
    in_processes(layout, [&](int, Communicator& communicator) {
      for (const auto& one : cases) {
        run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.broadcast(one.tensors[rank], one.root);
        });
      }
    });
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas from " << one.root << ", " << one.n << " of " << one.dtype);
      CHECK(all_are(whole_numbers(one.root, one.n, one.dtype).to(one.dtype), one.tensors));
    }
  }
}

TEST_CASE("all_gather gives every rank of every process the tensors of all ranks, in order") {
  const std::vector<std::vector<int64_t>> shapes{{}, {0}, {1}, {2}, {7, 143}, {10'007}};
  for (const auto& layout : kLayouts) {
    const int world = world_of(layout);
    std::vector<Case> cases;
    for (const auto& shape : shapes) {
      for (auto& one : cases_of(world, {torch::empty(shape).numel()})) {
        for (auto& tensor : one.tensors) tensor = tensor.view(shape);
        const auto room = torch::full_like(torch::stack(one.tensors), 77);
        for (int rank = 0; rank < world; ++rank) one.gathered.push_back(room.clone());
        cases.push_back(std::move(one));
      }
    }
    in_processes(layout, [&](int, Communicator& communicator) {
      for (const auto& one : cases) {
        run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.all_gather(one.tensors[rank], one.gathered[rank]);
        });
      }
    });
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas, " << one.n << " of " << one.dtype);
      CHECK(all_are(torch::stack(one.tensors), one.gathered));
    }
  }
}

TEST_CASE("ranks are counted over the processes in order, and each process drives its own") {
  for (const auto& layout : kLayouts) {
    std::vector<std::vector<int>> ranks(layout.size());   // [process]
    std::vector<std::vector<int>> worlds(layout.size());  // [process]: all that name a world's size
    std::vector<int> first_ranks(layout.size());
    in_processes(layout, [&](int process, Communicator& communicator) {
      const auto p = static_cast<size_t>(process);
      first_ranks[p] = communicator.first_rank();
      worlds[p].push_back(communicator.world_size());
      for (int local = 0; local < communicator.local_size(); ++local) {
        ranks[p].push_back(communicator.endpoint(local).rank());
        worlds[p].push_back(communicator.endpoint(local).world_size());
      }
    });
    INFO(text_of(layout) << " replicas");
    int next = 0;
    for (size_t p = 0; p < layout.size(); ++p) {
      CHECK(first_ranks[p] == next);
      std::vector<int> expected(static_cast<size_t>(layout[p]));
      for (auto& rank : expected) rank = next++;
      CHECK(ranks[p] == expected);
      CHECK(std::set<int>(worlds[p].begin(), worlds[p].end()) == std::set<int>{world_of(layout)});
    }
  }
}

// Order of summation: floats that use all their bits, so that each sum is rounded.
namespace {

using Numbers = std::vector<std::vector<float>>;  // [rank][element]

Numbers rounded_numbers(int world, size_t n) {
  std::mt19937 random(7);
  Numbers numbers(static_cast<size_t>(world), std::vector<float>(n));
  for (auto& of_rank : numbers) {
    for (auto& number : of_rank) {
      const auto mantissa = static_cast<float>(random() % (1 << 24)) - (1 << 23);
      number = std::ldexp(mantissa, static_cast<int>(random() % 4));
    }
  }
  return numbers;
}

// The replicas of each process in the order of their ranks, then the processes in order, as the channels of
// these tests sum.
std::vector<float> sums_in_order(const Numbers& numbers, const Layout& layout) {
  std::vector<float> sums;
  for (size_t i = 0; i < numbers.front().size(); ++i) {
    size_t rank = 0;
    float total = 0;
    for (size_t process = 0; process < layout.size(); ++process) {
      float part = numbers[rank++][i];
      for (int replica = 1; replica < layout[process]; ++replica) part += numbers[rank++][i];
      total = process == 0 ? part : total + part;
    }
    sums.push_back(total);
  }
  return sums;
}

}  // namespace

TEST_CASE("each process sums its replicas in the order of ranks, and all ranks get the channels' bits") {
  for (const auto& layout : kLayouts) {
    const auto numbers = rounded_numbers(world_of(layout), 1201);
    Tensors tensors;
    for (const auto& of_rank : numbers) tensors.push_back(torch::tensor(of_rank));
    in_processes(layout, [&](int, Communicator& communicator) { allreduce_all(communicator, tensors); });
    INFO(text_of(layout) << " replicas");
    CHECK(all_are(torch::tensor(sums_in_order(numbers, layout)), tensors));
  }
  // Check the test itself: the order matters.
  const auto numbers = rounded_numbers(4, 1201);
  CHECK(sums_in_order(numbers, {2, 2}) != sums_in_order(numbers, {3, 1}));
}
