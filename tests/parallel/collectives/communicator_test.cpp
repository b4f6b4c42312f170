// Results of collectives between the replicas of one process, and of several processes, which are threads.
// posting_test.cpp tests when they are posted; communicator_errors_test.cpp and processes_errors_test.cpp
// test their errors.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <numeric>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>

using namespace lockstep;
using namespace lockstep::testing;
using torch::kBFloat16;
using torch::kFloat32;
using torch::kFloat64;
using torch::kInt64;
using torch::Tensor;

namespace {

// One collective: the tensors of all ranks of all processes, and what each rank must get.
struct Case {
  Tensors tensors;
  Tensor expected;
  int root = 0;
  Tensors gathered = {};

  std::string text() const {
    return fmt::format("{} of {} from {}", tensors[0].numel(), torch::toString(tensors[0].scalar_type()),
                       root);
  }
};

std::vector<Tensors> tensors_of_all_types(int world, const std::vector<int64_t>& sizes) {
  std::vector<Tensors> all;
  for (const auto n : sizes) {
    for (const auto dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) all.push_back(inputs(world, n, dtype));
  }
  return all;
}

// One process, and several.
std::vector<Layout> all_layouts() {
  std::vector<Layout> all{{1}, {2}, {3}, {5}, {8}};
  all.insert(all.end(), kLayouts.begin(), kLayouts.end());
  return all;
}

}  // namespace

TEST_CASE("every layout, size, dtype and algorithm gives the exact sum, with the same bits on every rank") {
  for (const auto& setup : setups_of({{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}})) {
    const int world = world_of(setup.layout);
    const int64_t largest = setup.layout.size() == 1 ? 1'000'000 : 100'000;
    std::vector<Case> cases;
    for (auto& tensors : tensors_of_all_types(world, {0, 1, world - 1, world, 7, 997, largest})) {
      const auto sum = exact_sum(tensors);
      cases.push_back({std::move(tensors), sum});
    }
    in_processes(setup.layout,
                 [&](int, Communicator& communicator) {
                   for (const auto& one : cases) allreduce_all(communicator, one.tensors);
                 },
                 {.devices = {}, .algorithm = setup.algorithm});
    for (const auto& one : cases) {
      INFO(setup.text() << ", " << one.text());
      CHECK(all_are(one.expected, one.tensors));
    }
  }
}

TEST_CASE("every algorithm adds numbers of every dtype that torch adds, and refuses the others alike") {
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  for (const int world : {1, 2, 3}) {
    const auto communicator = cpu_communicator(world, algorithm);
    for (const int64_t n : {0, 1, 2, 997}) {
      for (const auto dtype : kSummedTypes) {
        const auto tensors = inputs(world, n, dtype);
        const auto expected = exact_sum(tensors);
        allreduce_all(*communicator, tensors);
        INFO(name_of(kAllreduceNames, algorithm) << ", world " << world << ", " << n << " of " << dtype);
        CHECK(all_are(expected, tensors));
      }
    }
    for (const auto dtype : kCopiedTypes) {
      const auto refusing = cpu_communicator(world, algorithm);
      for (auto& work : post_on_all(*refusing, [&](Endpoint&endpoint, size_t) {
             return endpoint.allreduce_sum(torch::empty({5}, dtype));
           })) {
        CHECK(usage_error(work) == std::string("allreduce cannot add 5 elements of ") + c10::toString(dtype));
      }
    }
  }
}

TEST_CASE("broadcast and all_gather move the bytes of every dtype") {
  const auto communicator = cpu_communicator(3);
  const auto check = [&](torch::ScalarType dtype) {
    Tensors tensors, gathered;
    for (int rank = 0; rank < 3; ++rank) {
      tensors.push_back(any_bytes(rank, 7, dtype));
      gathered.push_back(torch::empty({3, 7}, dtype));
    }
    gather_all(*communicator, tensors, gathered);
    broadcast_all(*communicator, tensors, 2);
    INFO(dtype);
    CHECK(all_are(any_bytes(2, 7, dtype), tensors));
    for (const auto& found : gathered) {
      for (int rank = 0; rank < 3; ++rank) CHECK(same_bits(found[rank], any_bytes(rank, 7, dtype)));
    }
  };
  for (const auto dtype : kSummedTypes) check(dtype);
  for (const auto dtype : kCopiedTypes) check(dtype);
}

TEST_CASE("the comparison detects a wrong sum on one rank, in one element, in one bit") {
  for (const auto dtype : {kFloat32, kFloat64, kBFloat16}) {
    const auto expected = exact_sum(inputs(3, 997, dtype));
    Tensors results{expected.clone(), expected.clone(), expected.clone()};
    CHECK(all_are(expected, results));
    results[2][500] += 1;
    CHECK_FALSE(all_are(expected, results));
    results[2] = expected.roll(1);  // the right numbers in the wrong places
    CHECK_FALSE(all_are(expected, results));
    results[2] = inputs(3, 997, dtype)[2];  // not summed at all
    CHECK_FALSE(all_are(expected, results));
    results[2] = exact_sum(inputs(2, 997, dtype));  // one rank left out
    CHECK_FALSE(all_are(expected, results));
  }
  CHECK_FALSE(all_are(torch::tensor({0.F}), {torch::tensor({-0.F})}));
}

TEST_CASE("broadcast from every rank reaches every rank of every process") {
  for (const auto& layout : all_layouts()) {
    const int world = world_of(layout);
    std::vector<Case> cases;
    for (int root = 0; root < world; ++root) {
      for (auto& tensors : tensors_of_all_types(world, {0, 1, world - 1, 997})) {
        const auto of_root = tensors[static_cast<size_t>(root)].clone();
        cases.push_back({std::move(tensors), of_root, root});
      }
    }
    in_processes(layout, [&](int, Communicator& communicator) {
      for (const auto& one : cases) broadcast_all(communicator, one.tensors, one.root);
    });
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas, " << one.text());
      CHECK(all_are(one.expected, one.tensors));
    }
  }
}

TEST_CASE("all_gather gives every rank of every process the tensors of all ranks, in order") {
  for (const auto& layout : all_layouts()) {
    const int world = world_of(layout);
    std::vector<Case> cases;
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {0}, {1}, {2}, {7, 143}, {10'007}}) {
      for (auto& tensors : tensors_of_all_types(world, {torch::empty(shape).numel()})) {
        for (auto& tensor : tensors) tensor = tensor.view(shape);
        const auto stacked = torch::stack(tensors);  // (world, ...shape)
        auto& one = cases.emplace_back(Case{std::move(tensors), stacked});
        for (int rank = 0; rank < world; ++rank) one.gathered.push_back(torch::full_like(stacked, 77));
      }
    }
    in_processes(layout, [&](int, Communicator& communicator) {
      for (const auto& one : cases) gather_all(communicator, one.tensors, one.gathered);
    });
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas, " << one.text());
      CHECK(all_are(one.expected, one.gathered));
    }
  }
}

TEST_CASE("ranks are counted over the processes in order, and each process drives its own") {
  for (const auto& layout : all_layouts()) {
    std::vector<std::vector<int>> ranks(layout.size());  // [process]
    std::vector<int> first_ranks(layout.size()), wrong(layout.size());
    in_processes(layout, [&](int process, Communicator& communicator) {
      const auto p = static_cast<size_t>(process);
      first_ranks[p] = communicator.first_rank();
      wrong[p] += communicator.world_size() != world_of(layout);
      for (int local = 0; local < communicator.local_size(); ++local) {
        const auto& endpoint = communicator.endpoint(local);
        ranks[p].push_back(endpoint.rank());
        wrong[p] +=
            endpoint.world_size() != world_of(layout) || endpoint.device() != torch::Device(torch::kCPU);
      }
    });
    INFO(text_of(layout) << " replicas");
    CHECK(wrong == std::vector<int>(layout.size()));
    int next = 0;
    for (size_t p = 0; p < layout.size(); ++p) {
      CHECK(first_ranks[p] == next);
      std::vector<int> expected(static_cast<size_t>(layout[p]));
      std::iota(expected.begin(), expected.end(), next);
      CHECK(ranks[p] == expected);
      next += layout[p];
    }
  }
  CHECK_THROWS_AS(cpu_communicator(0), UsageError);
}

TEST_CASE(
    "a collective touches its own part of a larger buffer alone, and parameters may require gradients") {
  const auto communicator = cpu_communicator(3);
  Tensors buffers, parts, params;
  for (int rank = 0; rank < 3; ++rank) {
    buffers.push_back(torch::full({100}, rank, kFloat32));
    parts.push_back(buffers.back().narrow(0, 40, 20));
    params.push_back(torch::full({5}, rank, kFloat32).requires_grad_());
  }
  allreduce_all(*communicator, parts);
  broadcast_all(*communicator, params, 2);
  for (int rank = 0; rank < 3; ++rank) {
    auto expected = torch::full({100}, rank, kFloat32);
    expected.narrow(0, 40, 20).fill_(3);  // 0 + 1 + 2
    CHECK(same_bits(buffers[static_cast<size_t>(rank)], expected));
    CHECK(params[static_cast<size_t>(rank)].is_leaf());
  }
  CHECK(all_are(torch::full({5}, 2, kFloat32), params));
}

namespace {

constexpr int64_t kElements = 1201;  // a prime, so that chunks are uneven

// A ring sums chunk c in the order c, c + 1, ..., c - 1. The others add the replicas of each process in the
// order of their ranks, then the processes in order, as the channels of these tests do.
Tensor sums_in_order(const Numbers& numbers, const Setup& setup) {
  const size_t n = numbers.front().size();
  size_t next = 1;  // chunk
  auto turned = numbers;
  std::vector<float> sums;
  for (size_t i = 0; i < n; ++i) {
    if (setup.algorithm == Allreduce::kRing && i == n * next / numbers.size()) {
      std::rotate(turned.begin(), turned.begin() + 1, turned.end());
      ++next;
    }
    const auto parts = sums_of_processes(turned, setup.layout, i);
    sums.push_back(std::accumulate(parts.begin() + 1, parts.end(), parts.front()));
  }
  return torch::tensor(sums);
}

}  // namespace

TEST_CASE("sums are taken in the documented order, and all ranks get the same bits") {
  for (const auto& setup : setups_of({{3}, {4}, {5}, {8}})) {
    INFO(setup.text());
    const int world = world_of(setup.layout);
    const auto numbers = rounded_numbers(world, kElements);
    const auto expected = sums_in_order(numbers, setup);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto tensors = tensors_of(numbers);
      in_processes(setup.layout,
                   [&](int, Communicator& communicator) { allreduce_all(communicator, tensors); },
                   {.devices = {}, .algorithm = setup.algorithm});
      REQUIRE(all_are(expected, tensors));
    }
  }
  // Check the test itself: another order gives other sums.
  const auto numbers = rounded_numbers(4, kElements);
  const auto usual = sums_in_order(numbers, {{4}});
  for (const auto& other : {Setup{{4}, Allreduce::kRing}, Setup{{2, 2}}}) {
    CHECK((usual != sums_in_order(numbers, other)).sum().item<int64_t>() > usual.numel() / 20);
  }
}
