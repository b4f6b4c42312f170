// Results of collectives between replicas of one process. communicator_errors_test.cpp tests
// their errors.
#include <lockstep/tests/catch.h>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/collectives.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::StartsWith;
using torch::kBFloat16;
using torch::kFloat32;
using torch::kFloat64;
using torch::kInt64;
using torch::Tensor;

TEST_CASE(
    "allreduce: every world, size, dtype and algorithm gives the exact sum, with the same bits everywhere") {
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  for (int world = 1; world <= 8; ++world) {
    const auto communicator = cpu_communicator(world, algorithm);
    CHECK(communicator->world_size() == world);
    for (const int64_t n : {0, 1, world - 1, world, 7, 997, 1'000'000}) {
      for (const auto dtype : {kFloat32, kFloat64, kBFloat16}) {
        const auto tensors = inputs(world, n, dtype);
        const auto expected = exact_sum(tensors);
        allreduce_all(*communicator, tensors);
        INFO(name_of(kAllreduceNames, algorithm) << ", world " << world << ", " << n << " of " << dtype);
        CHECK(all_are(expected, tensors));
      }
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
    const auto all = torch::cat(
        {tensors[0].view(torch::kByte), tensors[1].view(torch::kByte), tensors[2].view(torch::kByte)});
    run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
      return endpoint.all_gather(tensors[rank], gathered[rank]);
    });
    run_on_all(*communicator,
               [&](Endpoint& endpoint, size_t rank) { return endpoint.broadcast(tensors[rank], 2); });
    INFO(dtype);
    CHECK(all_are(any_bytes(2, 7, dtype), tensors));
    for (const auto& found : gathered) CHECK(same_bits(found.view({-1}).view(torch::kByte), all));
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

TEST_CASE("endpoints know their rank, world and device") {
  const auto communicator = cpu_communicator(3);
  CHECK(communicator->local_size() == 3);
  CHECK(communicator->first_rank() == 0);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(communicator->endpoint(rank).rank() == rank);
    CHECK(communicator->endpoint(rank).world_size() == 3);
    CHECK(communicator->endpoint(rank).device() == torch::Device(torch::kCPU));
  }
  CHECK_THROWS_AS(cpu_communicator(0), UsageError);
}

TEST_CASE("broadcast from every root") {
  for (const int world : {1, 2, 3, 5, 8}) {
    const auto communicator = cpu_communicator(world);
    for (int root = 0; root < world; ++root) {
      for (const int64_t n : {0, 1, world - 1, 997}) {
        for (const auto dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
          const auto tensors = inputs(world, n, dtype);
          run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
            return endpoint.broadcast(tensors[rank], root);
          });
          INFO("world " << world << " from " << root << ", " << n << " of " << dtype);
          CHECK(all_are(whole_numbers(root, n, dtype).to(dtype), tensors));
        }
      }
    }
  }
}

TEST_CASE("all_gather gives every rank the tensors of all ranks, in order") {
  for (const int world : {1, 2, 3, 5, 8}) {
    const auto communicator = cpu_communicator(world);
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{}, {0}, {1}, {world - 1}, {7, 143}}) {
      for (const auto dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
        const auto n = torch::empty(sizes).numel();
        auto tensors = inputs(world, n, dtype);
        for (auto& tensor : tensors) tensor = tensor.view(sizes);
        const auto expected = torch::stack(tensors);  // (world, ...sizes)
        Tensors gathered;
        for (int rank = 0; rank < world; ++rank) gathered.push_back(torch::full_like(expected, 77));
        run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.all_gather(tensors[rank], gathered[rank]);
        });
        INFO("world " << world << ", " << n << " of " << dtype);
        CHECK(all_are(expected, gathered));
      }
    }
  }
}

TEST_CASE(
    "a collective touches its own part of a larger buffer alone, and parameters may require gradients") {
  const auto communicator = cpu_communicator(3);
  Tensors buffers;
  Tensors params;
  for (int rank = 0; rank < 3; ++rank) {
    buffers.push_back(torch::full({100}, rank, kFloat32));
    params.push_back(torch::full({5}, rank, kFloat32).requires_grad_());
  }
  run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
    return endpoint.allreduce_sum(buffers[rank].narrow(0, 40, 20));
  });
  run_on_all(*communicator,
             [&](Endpoint& endpoint, size_t rank) { return endpoint.broadcast(params[rank], 2); });
  for (int rank = 0; rank < 3; ++rank) {
    auto expected = torch::full({100}, rank, kFloat32);
    expected.narrow(0, 40, 20).fill_(3);  // 0 + 1 + 2
    CHECK(same_bits(buffers[static_cast<size_t>(rank)], expected));
    CHECK(params[static_cast<size_t>(rank)].is_leaf());
  }
  CHECK(all_are(torch::full({5}, 2, kFloat32), params));
}

TEST_CASE("a finished collective does not hold its tensors") {
  const auto communicator = cpu_communicator(3);
  const auto tensors = inputs(3, 10, kFloat32);
  allreduce_all(*communicator, tensors);
  for (const auto& tensor : tensors) {
    // The communication thread releases the tensor shortly after it has reported the end.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (tensor.storage().use_count() > 1 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    CHECK(tensor.storage().use_count() == 1);
  }
}

TEST_CASE("many collectives can be posted before the first wait, and waited for in any order") {
  constexpr int kWorld = 4;
  constexpr int kRounds = 10;
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const auto communicator = cpu_communicator(kWorld, algorithm);
  std::vector<Tensors> sums, halves, copies, gathered;  // [round][rank]
  for (int round = 0; round < kRounds; ++round) {
    sums.push_back(inputs(kWorld, round * 37, kFloat32));
    halves.push_back(inputs(kWorld, round * 11, kBFloat16));
    copies.push_back(inputs(kWorld, round * 5, kFloat64));
    gathered.emplace_back();
    for (int rank = 0; rank < kWorld; ++rank) {
      gathered.back().push_back(torch::zeros({kWorld, round * 5}, kFloat64));
    }
  }
  std::vector<Work> works;
  for (int rank = 0; rank < kWorld;
       ++rank) {  // the first ranks post all their collectives before the last one begins
    auto& endpoint = communicator->endpoint(rank);
    const auto i = static_cast<size_t>(rank);
    for (size_t round = 0; round < kRounds; ++round) {
      works.push_back(endpoint.allreduce_sum(sums[round][i]));
      works.push_back(endpoint.broadcast(copies[round][i], static_cast<int>(round) % kWorld));
      works.push_back(endpoint.allreduce_sum(halves[round][i]));
      works.push_back(endpoint.all_gather(copies[round][i], gathered[round][i]));  // the broadcast tensors
    }
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
  for (int round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    const auto r = static_cast<size_t>(round);
    CHECK(all_are(exact_sum(inputs(kWorld, round * 37, kFloat32)), sums[r]));
    CHECK(all_are(exact_sum(inputs(kWorld, round * 11, kBFloat16)), halves[r]));
    const auto from_root = whole_numbers(round % kWorld, round * 5, kFloat64).to(kFloat64);
    CHECK(all_are(from_root, copies[r]));
    CHECK(all_are(from_root.expand({kWorld, -1}), gathered[r]));
  }
}

TEST_CASE("each rank can post from its own thread, at its own pace") {
  constexpr int kWorld = 4;
  constexpr int kRounds = 50;
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const auto communicator = cpu_communicator(kWorld, algorithm);
  const auto expected = exact_sum(inputs(kWorld, 997, kFloat32));
  std::vector<int> wrong(kWorld);  // Catch2's assertions are not thread-safe
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        for (int round = 0; round < kRounds; ++round) {
          const auto tensor = whole_numbers(rank, 997, kFloat32).to(kFloat32);
          auto work = communicator->endpoint(rank).allreduce_sum(tensor);
          for (int i = 0; i < rank * round; ++i) std::this_thread::yield();
          work.wait();
          work.wait();  // a second wait does nothing
          wrong[static_cast<size_t>(rank)] += !same_bits(tensor, expected);
        }
      });
    }
  }
  CHECK(wrong == std::vector<int>(kWorld));
}

// Order of summation: floats of different magnitudes that use all their bits, so that each sum is rounded.
namespace {

constexpr int64_t kChunk = 100;  // elements; tensors have one for each rank, so that chunks are equal

std::vector<std::vector<float>> wild_numbers(size_t world) {  // [rank][world * kChunk]
  std::mt19937 random(7);
  std::vector<std::vector<float>> numbers(world, std::vector<float>(world * kChunk));
  for (auto& of_rank : numbers) {
    for (auto& number : of_rank) {
      const auto mantissa = static_cast<float>(random() % (1 << 24)) - (1 << 23);  // all bits of a float
      number = std::ldexp(mantissa, static_cast<int>(random() % 4));
    }
  }
  return numbers;
}

// Sums element by element in the order first, first + 1, ..., first - 1 (cyclic).
float sum_from(const std::vector<std::vector<float>>& numbers, size_t first, size_t element) {
  float sum = numbers[first][element];
  for (size_t i = 1; i < numbers.size(); ++i) sum += numbers[(first + i) % numbers.size()][element];
  return sum;
}

Tensor expected_sum(const std::vector<std::vector<float>>& numbers, Allreduce algorithm) {
  std::vector<float> sums;
  for (size_t element = 0; element < numbers.front().size(); ++element) {
    const auto chunk = element / kChunk;  // the ring sums chunk c in the order c, c + 1, ..., c - 1
    sums.push_back(sum_from(numbers, algorithm == Allreduce::kRing ? chunk : 0, element));
  }
  return torch::tensor(sums);
}

}  // namespace

TEST_CASE("sums are taken in the documented order") {
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  for (const int world : {3, 4, 5, 8}) {
    INFO(name_of(kAllreduceNames, algorithm) << ", world " << world);
    const auto numbers = wild_numbers(static_cast<size_t>(world));
    const auto expected = expected_sum(numbers, algorithm);
    const auto communicator = cpu_communicator(world, algorithm);
    for (int repeat = 0; repeat < 10; ++repeat) {
      Tensors tensors;
      for (const auto& of_rank : numbers) tensors.push_back(torch::tensor(of_rank));
      allreduce_all(*communicator, tensors);
      REQUIRE(all_are(expected, tensors));
    }
    // Check the test itself: another order gives other sums.
    const auto other =
        expected_sum(numbers, algorithm == Allreduce::kRing ? Allreduce::kRoot : Allreduce::kRing);
    CHECK((expected != other).sum().item<int64_t>() > expected.numel() / 20);
  }
}

TEST_CASE("a default Work has nothing to wait for") {
  Work work;
  work.wait();
  work.wait();
}

TEST_CASE("the trace has one span per collective and rank, and they overlap") {
  constexpr int kWorld = 3;
  Trace trace;
  const auto communicator = cpu_communicator(kWorld, Allreduce::kRing, &trace);
  run_on_all(*communicator,
             [](Endpoint& endpoint, size_t) { return endpoint.allreduce_sum(torch::zeros({1'000'000})); });
  run_on_all(*communicator,
             [](Endpoint& endpoint, size_t) { return endpoint.broadcast(torch::zeros({3}), 1); });
  const auto events = trace.events();
  REQUIRE(events.size() == 2 * kWorld);
  for (size_t collective = 0; collective < 2; ++collective) {
    std::vector<int> ranks;
    int64_t last_begin = 0;
    int64_t first_end = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < kWorld; ++i) {
      const auto& event = events[collective * kWorld + i];
      CHECK_THAT(event.name, StartsWith(collective == 0 ? "allreduce 4.000 MB" : "broadcast from 1"));
      CHECK(event.track == Trace::Track::kCommunication);
      ranks.push_back(event.rank);
      last_begin = std::max(last_begin, event.begin_order);
      first_end = std::min(first_end, event.end_order);
    }
    std::sort(ranks.begin(), ranks.end());
    CHECK(ranks == std::vector<int>{0, 1, 2});
    CHECK(last_begin < first_end);  // no span ends before all have begun
  }
}
