// Collectives that are posted early, late or from several threads, in one process and in several; what they
// hold, and what a trace tells of them.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
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

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::StartsWith;
using torch::kBFloat16;
using torch::kFloat32;
using torch::kFloat64;
using torch::Tensor;

TEST_CASE("a finished collective does not hold its tensors") {
  for (const auto& layout : {Layout{3}, Layout{2, 1}}) {
    const auto tensors = inputs(3, 10, kFloat32), gathered = inputs(3, 30, kFloat32);
    std::vector<size_t> held(3);  // [rank]
    in_processes(layout, [&](int, Communicator& communicator) {
      allreduce_all(communicator, tensors);
      gather_all(communicator, tensors, gathered);
      broadcast_all(communicator, tensors, 2);
      // The communication threads release the tensors shortly after they have reported the end.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      for (int local = 0; local < communicator.local_size(); ++local) {
        const auto rank = static_cast<size_t>(communicator.endpoint(local).rank());
        const auto count = [&] {
          return tensors[rank].storage().use_count() + gathered[rank].storage().use_count();
        };
        while (count() > 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        held[rank] = static_cast<size_t>(count());
      }
    });
    INFO(text_of(layout));
    CHECK(held == std::vector<size_t>(3, 2));
  }
}

TEST_CASE("many collectives can be posted before the first wait, and waited for in any order") {
  struct Round {
    Tensors sums, halves, copies, gathered = {};  // [rank]
    Tensor sum = {}, half = {}, copy = {};        // what they must be
  };
  for (const auto& setup : setups_of({{4}}, {{1, 3, 2}})) {
    const int world = world_of(setup.layout);
    std::vector<Round> rounds;
    for (int i = 0; i < 10; ++i) {
      Round round{inputs(world, i * 37, kFloat32), inputs(world, i * 11, kBFloat16),
                  inputs(world, i * 5, kFloat64)};
      round.gathered = room_for(round.copies);
      round.sum = exact_sum(round.sums);
      round.half = exact_sum(round.halves);
      round.copy = round.copies[static_cast<size_t>(i % world)].clone();
      rounds.push_back(std::move(round));
    }
    in_processes(
        setup.layout,
        [&](int, Communicator& communicator) {
          std::vector<Work> works;
          for (int local = 0; local < communicator.local_size(); ++local) {
            // The first replicas post all their collectives before the last one begins.
            auto& endpoint = communicator.endpoint(local);
            const auto rank = static_cast<size_t>(endpoint.rank());
            for (size_t i = 0; i < rounds.size(); ++i) {
              works.push_back(endpoint.allreduce_sum(rounds[i].sums[rank]));
              works.push_back(endpoint.broadcast(rounds[i].copies[rank], static_cast<int>(i) % world));
              works.push_back(endpoint.allreduce_sum(rounds[i].halves[rank]));
              // The broadcast tensors:
              works.push_back(endpoint.all_gather(rounds[i].copies[rank], rounds[i].gathered[rank]));
            }
          }
          for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
        },
        {.devices = {}, .algorithm = setup.algorithm});
    for (size_t i = 0; i < rounds.size(); ++i) {
      INFO(setup.text() << ", round " << i);
      CHECK(all_are(rounds[i].sum, rounds[i].sums));
      CHECK(all_are(rounds[i].half, rounds[i].halves));
      CHECK(all_are(rounds[i].copy, rounds[i].copies));
      CHECK(all_are(rounds[i].copy.expand({world, -1}), rounds[i].gathered));
    }
  }
}

TEST_CASE("every rank can post from its own thread, at its own pace") {
  for (const auto& setup : setups_of({{4}}, {{2, 1, 1}})) {
    const auto given = inputs(4, 997, kFloat32);
    const auto expected = exact_sum(given);
    std::vector<int> wrong(4);  // Catch2's assertions are not thread-safe
    in_processes(setup.layout,
                 [&](int, Communicator& communicator) {
                   std::vector<std::jthread> threads;
                   for (int local = 0; local < communicator.local_size(); ++local) {
                     threads.emplace_back([&, local] {
                       auto& endpoint = communicator.endpoint(local);
                       const auto rank = static_cast<size_t>(endpoint.rank());
                       for (int round = 0; round < 50; ++round) {
                         const auto tensor = given[rank].clone();
                         auto work = endpoint.allreduce_sum(tensor);
                         for (int i = 0; i < endpoint.rank() * round; ++i) std::this_thread::yield();
                         work.wait();
                         work.wait();  // a second wait does nothing
                         wrong[rank] += !same_bits(tensor, expected);
                       }
                     });
                   }
                 },
                 {.devices = {}, .algorithm = setup.algorithm});
    INFO(setup.text());
    CHECK(wrong == std::vector<int>(4));
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
  allreduce_all(*communicator, inputs(kWorld, 1'000'000, kFloat32));
  broadcast_all(*communicator, inputs(kWorld, 3, kFloat32), 1);
  const auto events = trace.events();
  REQUIRE(events.size() == 2 * kWorld);
  for (size_t collective = 0; collective < 2; ++collective) {
    std::set<int> ranks;
    int64_t last_begin = 0, first_end = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < kWorld; ++i) {
      const auto& event = events[collective * kWorld + i];
      CHECK_THAT(event.name, StartsWith(collective == 0 ? "allreduce 4.000 MB" : "broadcast from 1"));
      CHECK(event.track == Trace::Track::kCommunication);
      ranks.insert(event.rank);
      last_begin = std::max(last_begin, event.begin_order);
      first_end = std::min(first_end, event.end_order);
    }
    CHECK(ranks == std::set<int>{0, 1, 2});
    CHECK(last_begin < first_end);  // no span ends before all have begun
  }
}

TEST_CASE("a process's trace has its own ranks, also for the sum of one replica") {
  const Layout layout{1, 2};
  const auto ranks = by_process(2, [&](int process, const Group& group) {
    Trace trace;
    allreduce_all(*communicator_of(layout, process, group, {.devices = {}, .trace = &trace}),
                  inputs(3, 10, kFloat32));
    std::vector<int> found;
    for (const auto& event : trace.events()) found.push_back(event.rank);
    std::sort(found.begin(), found.end());
    return found;
  });
  CHECK(ranks == std::vector<std::vector<int>>{{0}, {1, 2}});
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
  std::future<void> all_to_all(torch::Tensor, torch::Tensor, DealtSizes) override { return post(); }
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
