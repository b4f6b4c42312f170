// Collectives between the replicas of several processes that are posted early, late or from several threads,
// what they hold and what a trace tells of them.
#include <lockstep/tests/catch.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/parallel/collectives/sum_by_hand.h>

using namespace lockstep;
using namespace lockstep::testing;
using torch::kFloat32;
using torch::kFloat64;

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
  run_processes(2, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    const auto communicator = communicator_of(layout, process, group, &traces[static_cast<size_t>(process)]);
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

class LateProcessGroup : public ProcessGroup {
 public:
  const World& world() const override { return world_; }
  std::vector<std::string> gather(const std::string& own) override {
    auto other = nlohmann::json::parse(own);
    other["communicator"]["replicas"] = 3;  // in the other process
    return {own, other.dump()};
  }
  std::vector<std::unique_ptr<Channel>> make_channels(int count) override {
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
    const auto communicator = make_communicator({.devices = {torch::kCPU},
                                                 .process_group = std::make_shared<LateProcessGroup>(),
                                                 .compress = compress});
    REQUIRE(communicator->world_size() == 4);
    auto work = communicator->endpoint(0).allreduce_gradients(torch::zeros({10}));
    work.wait();  // would never return
  }
}
