// Results of collectives between the replicas of several processes. processes_errors_test.cpp tests their
// errors.
#include <lockstep/tests/catch.h>
#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <random>
#include <set>
#include <thread>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/processes.h>
#include <lockstep/parallel/timing/trace.h>
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

constexpr torch::ScalarType kTypes[] = {kFloat32, kFloat64, kBFloat16, kInt64};

// The sum over all ranks of collectives.h's whole_numbers(), from their formula.
Tensor sum_by_hand(int world, int64_t n, torch::ScalarType dtype) {
  const int64_t modulus = dtype == kBFloat16 ? 29 : 1'000'003;
  auto sums = torch::zeros({n}, kFloat64);
  auto* sum = sums.mutable_data_ptr<double>();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t rank = 0; rank < world; ++rank) {
      sum[i] += static_cast<double>((i * 7919 + rank * 104'729) % modulus - modulus / 2);
    }
  }
  return sums.to(dtype);
}

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

TEST_CASE("a finished collective between processes does not hold its tensors") {
  const Layout layout{2, 1};
  const auto tensors = inputs(3, 10, kFloat32);
  const auto gathered = inputs(3, 30, kFloat32);
  std::vector<size_t> held(2);  // [process]
  in_processes(layout, [&](int process, Communicator& communicator) {
    allreduce_all(communicator, tensors);
    run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
      return endpoint.all_gather(tensors[rank], gathered[rank]);
    });
    run_on_all(communicator,
               [&](Endpoint& endpoint, size_t rank) { return endpoint.broadcast(tensors[rank], 2); });
    // The communication threads release the tensors shortly after they have reported the end.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto count_held = [&] {
      size_t count = 0;
      for (int local = 0; local < communicator.local_size(); ++local) {
        const auto rank = static_cast<size_t>(communicator.endpoint(local).rank());
        count += tensors[rank].storage().use_count() + gathered[rank].storage().use_count();
      }
      return count;
    };
    auto& count = held[static_cast<size_t>(process)];
    const auto own = 2 * static_cast<size_t>(communicator.local_size());
    while ((count = count_held()) > own && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  });
  CHECK(held == std::vector<size_t>{4, 2});
}

TEST_CASE("many collectives between processes can be posted before the first wait") {
  constexpr size_t kRounds = 10;
  const Layout layout{1, 3, 2};
  const int world = world_of(layout);
  std::vector<Tensors> sums, copies, gathered;  // [round][rank]
  for (int round = 0; round < static_cast<int>(kRounds); ++round) {
    sums.push_back(inputs(world, round * 37, kFloat32));
    copies.push_back(inputs(world, round * 5, kFloat64));
    gathered.emplace_back();
    for (int rank = 0; rank < world; ++rank) {
      gathered.back().push_back(torch::zeros({world, round * 5}, kFloat64));
    }
  }
  in_processes(layout, [&](int, Communicator& communicator) {
    std::vector<Work> works;
    for (int local = 0; local < communicator.local_size(); ++local) {
      auto& endpoint = communicator.endpoint(local);
      const auto rank = static_cast<size_t>(endpoint.rank());
      for (size_t round = 0; round < kRounds; ++round) {
        works.push_back(endpoint.broadcast(copies[round][rank], static_cast<int>(round) % world));
        works.push_back(endpoint.allreduce_sum(sums[round][rank]));
        works.push_back(endpoint.all_gather(copies[round][rank], gathered[round][rank]));
      }
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
  });
  for (int round = 0; round < static_cast<int>(kRounds); ++round) {
    INFO("round " << round);
    const auto r = static_cast<size_t>(round);
    const auto from_root = whole_numbers(round % world, round * 5, kFloat64).to(kFloat64);
    CHECK(all_are(sum_by_hand(world, round * 37, kFloat32), sums[r]));
    CHECK(all_are(from_root, copies[r]));
    CHECK(all_are(from_root.expand({world, -1}), gathered[r]));
  }
}

TEST_CASE("every rank of every process can post from its own thread, at its own pace") {
  constexpr int kRounds = 50;
  const Layout layout{2, 1, 1};
  const auto expected = sum_by_hand(world_of(layout), 997, kFloat32);
  std::vector<int> wrong(static_cast<size_t>(world_of(layout)));
  in_processes(layout, [&](int, Communicator& communicator) {
    std::vector<std::jthread> threads;
    for (int local = 0; local < communicator.local_size(); ++local) {
      threads.emplace_back([&, local] {
        auto& endpoint = communicator.endpoint(local);
        for (int round = 0; round < kRounds; ++round) {
          const auto tensor = whole_numbers(endpoint.rank(), 997, kFloat32).to(kFloat32);
          auto work = endpoint.allreduce_sum(tensor);
          for (int i = 0; i < endpoint.rank() * round; ++i) std::this_thread::yield();
          work.wait();
          wrong[static_cast<size_t>(endpoint.rank())] += !same_bits(tensor, expected);
        }
      });
    }
  });
  CHECK(wrong == std::vector<int>(wrong.size()));
}

TEST_CASE("a process's trace has its own ranks, also for the sum of one replica") {
  const Layout layout{1, 2};
  std::array<Trace, 2> traces;
  run_processes(2, [&](int process, const std::shared_ptr<Processes>& processes) {
    const auto communicator =
        communicator_of(layout, process, processes, &traces[static_cast<size_t>(process)]);
    allreduce_all(*communicator, inputs(3, 10, kFloat32));
  });
  const auto ranks_in = [](const Trace& trace) {
    std::multiset<int> ranks;
    for (const auto& event : trace.events()) ranks.insert(event.rank);
    return ranks;
  };
  CHECK(ranks_in(traces[0]) == std::multiset<int>{0});
  CHECK(ranks_in(traces[1]) == std::multiset<int>{1, 2});
}

// One process with one replica beside one with three, which is made up: its tensors arrive when the first
// process has posted three of its own, and then the next three.
namespace {

using Promises = std::vector<std::promise<void>>;

class LateChannel : public Channel {
 public:
  explicit LateChannel(std::shared_ptr<Promises> posted) : posted_(std::move(posted)) {}

  std::future<void> allreduce_sum(torch::Tensor) override { return post(); }
  std::future<void> broadcast(torch::Tensor, int) override { throw std::logic_error("not used"); }
  std::future<void> all_gather(torch::Tensor, torch::Tensor) override { return post(); }
  std::future<void> all_to_all(torch::Tensor, torch::Tensor) override { return post(); }
  void abort(std::exception_ptr) noexcept override {}

 private:
  std::future<void> post() {
    posted_->emplace_back();
    auto done = posted_->back().get_future();
    if (posted_->size() == 3) {
      for (auto& promise : *posted_) promise.set_value();
      posted_->clear();
    }
    return done;
  }

  const std::shared_ptr<Promises> posted_;  // on any of the channels
};

class LateProcesses : public Processes {
 public:
  const World& world() const override { return world_; }
  std::vector<std::string> gather(const std::string& own) override {
    return {own, own == "1" ? "3" : own};  // 1: the number of replicas
  }
  std::vector<std::unique_ptr<Channel>> open_channels(int count) override {
    std::vector<std::unique_ptr<Channel>> channels;
    for (int i = 0; i < count; ++i) channels.push_back(std::make_unique<LateChannel>(posted_));
    return channels;
  }

 private:
  const World world_{.process = 0, .processes = 2};
  const std::shared_ptr<Promises> posted_ = std::make_shared<Promises>();
};

}  // namespace

TEST_CASE("a replica posts all of its chunks before it waits for one") {
  for (const auto compress : {Compress::kNone, Compress::kBf16}) {
    const auto communicator = make_communicator(
        {.devices = {torch::kCPU}, .processes = std::make_shared<LateProcesses>(), .compress = compress});
    CHECK(communicator->world_size() == 4);
    auto work = communicator->endpoint(0).allreduce_gradients(torch::zeros({10}));
    work.wait();  // would never return
  }
}
