// Errors of collectives between replicas of one process.
#include <lockstep/tests/catch.h>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using torch::kFloat64;

namespace {

Post sum_of(const torch::Tensor& tensor) {
  return [=](Endpoint& endpoint, size_t) { return endpoint.allreduce_sum(tensor); };
}
Post copy_of(const torch::Tensor& tensor, int root) {
  return [=](Endpoint& endpoint, size_t) { return endpoint.broadcast(tensor, root); };
}
Post gather_of(const torch::Tensor& tensor, const torch::Tensor& out) {
  return [=](Endpoint& endpoint, size_t) { return endpoint.all_gather(tensor, out); };
}

// Each rank sums a tensor of its own.
Work new_sum(Endpoint& endpoint, size_t) { return endpoint.allreduce_sum(torch::zeros({100})); }

}  // namespace

TEST_CASE("ranks that call different collectives all get an error that names both") {
  struct Call {
    Post post;
    std::string name;
  };
  const Call sum{sum_of(torch::zeros({5})), "allreduce of 5 elements of Float"},
      longer{sum_of(torch::zeros({6})), "allreduce of 6 elements of Float"},
      doubles{sum_of(torch::zeros({5}, kFloat64)), "allreduce of 5 elements of Double"},
      copy{copy_of(torch::zeros({5}), 0), "broadcast from 0 of 5 elements of Float"},
      other_root{copy_of(torch::zeros({5}), 1), "broadcast from 1 of 5 elements of Float"},
      gather{gather_of(torch::zeros({5}), torch::zeros({3, 5})), "all_gather of 5 elements of Float"};
  const std::pair<Call, Call> cases[] = {
      {sum, longer}, {sum, doubles}, {sum, copy}, {copy, other_root}, {sum, gather}};
  for (const auto& [usual, other] : cases) {
    for (size_t odd = 0; odd < 3; ++odd) {
      const auto communicator = cpu_communicator(3, kAlgorithms[odd]);
      auto works =
          post_on_all(*communicator, [&, &usual = usual, &other = other](Endpoint& endpoint, size_t rank) {
            return (rank == odd ? other : usual).post(endpoint, rank);
          });
      const auto message = usage_error(works[0]);
      CHECK_THAT(message, ContainsSubstring("rank 0 called " + (odd == 0 ? other : usual).name));
      // The error names the first rank that differs from rank 0.
      CHECK_THAT(message, ContainsSubstring("rank " + std::to_string(odd == 2 ? 2 : 1) + " called " +
                                            (odd == 0 ? usual : other).name));
      CHECK(usage_error(works[1]) == message);
      CHECK(usage_error(works[2]) == message);
      // Later collectives fail with the same error, though all ranks agree again.
      for (auto& work : post_on_all(*communicator, sum.post)) CHECK(usage_error(work) == message);
    }
  }
}

TEST_CASE("the same collectives in different orders are an error, whatever was posted after them") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto communicator = cpu_communicator(4);
    std::vector<std::vector<std::string>> messages(4);
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < 4; ++rank) {
        threads.emplace_back([&, rank] {
          auto& endpoint = communicator->endpoint(static_cast<int>(rank));
          std::vector<Work> works;
          works.push_back(endpoint.allreduce_sum(torch::zeros({2})));  // all ranks post this one
          for (const int64_t n : {3, 4})
            works.push_back(endpoint.allreduce_sum(torch::zeros({rank == 3 ? 7 - n : n})));
          // These are already queued while some ranks still compare the others' calls.
          for (int64_t n = 5; n < 30; ++n) works.push_back(endpoint.allreduce_sum(torch::zeros({n})));
          for (auto& work : works) messages[rank].push_back(usage_error(work));
        });
      }
    }
    const std::string expected =
        "replicas disagree: rank 0 called allreduce of 3 elements of Float, rank 3 called allreduce of 4 "
        "elements of Float";
    std::vector<std::string> wanted(28, expected);
    wanted.front() = "no UsageError";
    for (const auto& of_rank : messages) REQUIRE(of_rank == wanted);
  }
}

TEST_CASE("a wrong tensor is an error on every rank") {
  const auto complex = torch::zeros({24}, torch::kComplexFloat), one = torch::zeros({24});
  const std::string negative = " with a tensor that is another one's conjugate or negative";
  for (const int world : {1, 3}) {
    const auto out = torch::zeros({world, 24});
    const std::pair<Post, std::string> cases[] = {
        {sum_of(torch::zeros({4, 6}).t()), "allreduce with a tensor of shape [6, 4] and strides [1, 6]"},
        {sum_of(torch::zeros({24}, torch::kMeta)), "allreduce with a tensor on meta"},
        {copy_of(torch::zeros({48}).slice(0, 0, 48, 2), 0),
         "broadcast from 0 with a tensor of shape [24] and strides [2]"},
        {sum_of(complex.conj()), "allreduce" + negative},
        {copy_of(complex.conj(), 0), "broadcast from 0" + negative},
        {gather_of(torch::_neg_view(one), out), "all_gather" + negative},
        {gather_of(torch::zeros({4, 6}).t(), out),
         "all_gather with a tensor of shape [6, 4] and strides [1, 6]"},
        {copy_of(one, -1), "broadcast from -1"},
        {copy_of(one, world), "in a world of "},
        {gather_of(one, torch::zeros({7})), "all_gather of 24 elements of Float from "},
        {gather_of(one, torch::zeros({world, 24}, kFloat64)), " elements of Double"},
        {gather_of(one, torch::zeros({24, world + 1}).narrow(1, 0, world)), "and strides ["}};
    for (const auto& [wrong, words] : cases) {
      INFO("world " << world << ": " << words);
      const auto communicator = cpu_communicator(world);
      auto before = post_on_all(*communicator, new_sum);
      auto works = post_on_all(*communicator, [&, &post = wrong](Endpoint& endpoint, size_t rank) {
        return static_cast<int>(rank) == world - 1 ? post(endpoint, rank)
                                                   : endpoint.allreduce_sum(torch::zeros({24}));
      });
      for (auto& work : before) CHECK(error_of(work) == nullptr);  // earlier collectives succeed
      for (auto& work : works) CHECK_THAT(refusal_of([&] { work.wait(); }), ContainsSubstring(words));
      for (auto& work : post_on_all(*communicator, new_sum)) CHECK(error_of(work) != nullptr);
    }
  }
}

TEST_CASE("abort ends the wait for a rank that never comes, with abort's error") {
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const auto threads_before = thread_count();
  const auto given = std::make_exception_ptr(std::runtime_error("rank 3 died"));
  {
    const auto communicator = cpu_communicator(4, algorithm);
    std::vector<std::exception_ptr> seen(6);
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
          auto& endpoint = communicator->endpoint(rank);
          auto first = endpoint.allreduce_sum(torch::zeros({100}));
          auto second = endpoint.broadcast(torch::zeros({100}), 3);
          seen[static_cast<size_t>(rank)] = error_of(first);
          seen[static_cast<size_t>(rank) + 3] = error_of(second);
        });
      }
      communicator->endpoint(3).abort(given);
    }
    for (const auto& error : seen) CHECK(error == given);

    communicator->endpoint(0).abort(std::make_exception_ptr(std::runtime_error("a later one")));
    for (auto& work : post_on_all(*communicator, new_sum)) CHECK(error_of(work) == given);
  }
  CHECK(thread_count_down_to(threads_before) == threads_before);
}

TEST_CASE("an abort at any moment ends all ranks, and a collective succeeds on all ranks or on none") {
  constexpr int kWorld = 3;
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const auto given = std::make_exception_ptr(std::runtime_error("stop"));
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto communicator = cpu_communicator(kWorld, algorithm);
    std::vector<std::exception_ptr> seen(kWorld);
    std::vector<int> done(kWorld);
    std::atomic<int> posted = 0;
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < kWorld; ++rank) {
        threads.emplace_back([&, rank] {
          while (!seen[rank]) {
            ++posted;
            auto work = communicator->endpoint(static_cast<int>(rank)).allreduce_sum(torch::zeros({50}));
            seen[rank] = error_of(work);
            done[rank] += !seen[rank];
          }
        });
      }
      while (posted < repeat) std::this_thread::yield();
      communicator->endpoint(repeat % kWorld).abort(given);
    }
    REQUIRE((seen == std::vector(kWorld, given)));  // in parentheses: exceptions cannot be printed
    REQUIRE(done == std::vector(kWorld, done.front()));
  }
}

TEST_CASE("tensors of collectives posted after an aborted one stay unchanged") {
  constexpr int kWorld = 4;
  constexpr int64_t kElements = 200'000;  // enough for some rank to be working when the abort comes
  const auto algorithm = GENERATE(from_range(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const auto given = std::make_exception_ptr(std::runtime_error("stop"));
  Tensors first, second, before;
  for (int rank = 0; rank < kWorld; ++rank) {
    first.push_back(torch::zeros({kElements}));
    second.push_back(torch::full({kElements}, rank));
    before.push_back(second.back().clone());
  }
  int touched = 0;
  for (int repeat = 0; repeat < 600; ++repeat) {
    auto communicator = cpu_communicator(kWorld, algorithm);
    const auto post = [&](const Tensors& tensors) {
      return post_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
        return endpoint.allreduce_sum(tensors[rank]);
      });
    };
    auto works = post(first);
    const auto behind = post(second);
    for (std::atomic<int> i = 0; i < repeat % 300 * 500;
         ++i) {  // another moment of the first collective each time
    }
    communicator->endpoint(0).abort(given);
    const bool first_is_over = !error_of(works.front());
    communicator.reset();  // ends its threads, so they write nothing after this
    for (size_t i = 0; i < kWorld; ++i) {
      if (same_bits(second[i], before[i])) continue;
      touched += !first_is_over;
      second[i].copy_(before[i]);
    }
  }
  CHECK(touched == 0);
}

TEST_CASE("abort also ends the collectives of a world of one") {
  const auto communicator = cpu_communicator(1);
  const auto given = std::make_exception_ptr(std::runtime_error("stop"));
  communicator->endpoint(0).abort(given);
  auto sum = communicator->endpoint(0).allreduce_sum(torch::zeros({3}));
  auto copy = communicator->endpoint(0).broadcast(torch::zeros({3}), 0);
  CHECK(error_of(sum) == given);
  CHECK(error_of(copy) == given);
}

TEST_CASE("destroying a communicator ends waiting ranks and leaves no thread behind") {
  const auto threads_before = thread_count();
  for (const int world : {1, 2, 4}) {
    auto communicator = cpu_communicator(world);
    CHECK(thread_count() >= threads_before + world);  // one per rank
    std::vector<Work> works;
    const auto tensor = torch::zeros({10});
    for (int i = 0; i < 5 && world > 1; ++i) works.push_back(communicator->endpoint(0).allreduce_sum(tensor));
    communicator.reset();
    for (auto& work : works) CHECK_THROWS_WITH(work.wait(), "the communicator was destroyed");
    CHECK(thread_count_down_to(threads_before) == threads_before);
    CHECK(tensor.storage().use_count() == 1);  // nothing holds the tensor
  }
}
