// Errors of collectives between the replicas of several processes.
#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <atomic>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/rank_layout.h>
#include <lockstep/parallel/threads/barrier.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

using Errors = std::vector<std::exception_ptr>;  // one per rank

// The message of a PeerError; empty without an error.
std::string peer_error(const std::exception_ptr& error) {
  return refusal_of<PeerError>([&] {
    if (error) std::rethrow_exception(error);
  });
}

Work sum_of_zeros(Endpoint& endpoint, size_t) { return endpoint.allreduce_sum(torch::zeros({1000})); }

struct Waiting {
  Post post;
  int channel_posts;  // of each process that waits
};

// In three processes with two, one and one replicas. Each waits for the last one.
const std::vector<Waiting> kWaiting{
    {sum_of_zeros, 2},
    {[](Endpoint& endpoint, size_t) { return endpoint.broadcast(torch::zeros({10}), 3); }, 1},
    {[](Endpoint& endpoint, size_t) {
       return endpoint.all_gather(torch::zeros({10}), torch::zeros({4, 10}));
     },
     1}};

// The errors of these works into those of their ranks.
void collect(const Communicator& communicator, std::vector<Work>& works, Errors& errors) {
  for (size_t i = 0; i < works.size(); ++i) {
    errors[static_cast<size_t>(communicator.first_rank()) + i] = error_of(works[i]);
  }
}

}  // namespace

TEST_CASE("an error in one replica ends all of its process, and the others when it leaves") {
  const Layout layout{1, 3};
  std::vector<std::string> messages(4);  // [rank]
  Errors first(4);
  std::exception_ptr later;
  in_processes(layout, [&](int process, Communicator& communicator) {
    auto works = post_on_all(communicator, [](Endpoint& endpoint, size_t rank) {
      return endpoint.allreduce_sum(torch::zeros({rank == 2 ? 7 : 1000}));
    });
    if (process == 0) return collect(communicator, works, first);
    for (size_t i = 0; i < works.size(); ++i) messages[1 + i] = usage_error(works[i]);
    auto again = sum_of_zeros(communicator.endpoint(0), 1);
    later = error_of(again);
  });
  CHECK_THAT(messages[1], StartsWith("replicas disagree: rank 1 called allreduce of 1000 elements of Float, "
                                     "rank 2 called allreduce of 7 elements"));
  CHECK(messages[2] == messages[1]);
  CHECK(messages[3] == messages[1]);
  CHECK(later != nullptr);
  CHECK(peer_error(first[0]) == "process 1 left a channel");
}

TEST_CASE("wrong arguments are checked against the world of all processes") {
  std::vector<std::vector<std::string>> messages(2);  // [process]
  for (int wrong = 0; wrong < 3; ++wrong) {
    in_processes({2, 2}, [&](int process, Communicator& communicator) {
      auto works = post_on_all(communicator, [&](Endpoint& endpoint, size_t) {
        if (wrong == 0) return endpoint.broadcast(torch::zeros({5}), 4);
        if (wrong == 1) return endpoint.all_gather(torch::zeros({5}), torch::zeros({2, 5}));
        return endpoint.allreduce_sum(torch::zeros({4, 6}).t());
      });
      for (auto& work : works) {
        messages[static_cast<size_t>(process)].push_back(refusal_of([&] { work.wait(); }));
      }
    });
  }
  for (const auto& own : messages) {
    REQUIRE(own.size() == 6);
    CHECK(own[0] == "broadcast from 4 in a world of 4");
    CHECK_THAT(own[2], StartsWith("all_gather of 5 elements of Float from 4 ranks into 10 elements"));
  }
  CHECK_THAT(messages[1][4], ContainsSubstring("called allreduce with a tensor of shape [6, 4]"));
  CHECK((messages[1][4].find("rank 2") == 0 || messages[1][4].find("rank 3") == 0));
}

TEST_CASE("abort ends the wait for another process, with abort's error") {
  const auto given = std::make_exception_ptr(std::runtime_error("stop"));
  for (const auto& waiting : kWaiting) {
    Errors during(4), later(4);
    Barrier over(3);  // a process that leaves would end the others' waits, too
    run_processes(3, [&](int process, const Group& group) {
      const auto communicator = communicator_of({2, 1, 1}, process, group);
      if (process == 2) return over.arrive_and_wait();  // it never posts
      auto works = post_on_all(*communicator, waiting.post);
      await_posts(*group, waiting.channel_posts);
      communicator->endpoint(communicator->local_size() - 1).abort(given);
      collect(*communicator, works, during);
      communicator->endpoint(0).abort(std::make_exception_ptr(std::runtime_error("a later one")));
      works = post_on_all(*communicator, sum_of_zeros);
      collect(*communicator, works, later);
      over.arrive_and_wait();
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      CHECK(during[rank] == given);
      CHECK(later[rank] == given);
    }
  }
}

TEST_CASE("a process that vanishes ends every collective of the others with a PeerError") {
  for (const auto& waiting : kWaiting) {
    Errors before(4), during(4), later(4);
    std::vector<std::promise<void>> posted(2);
    run_processes(3, [&](int process, const Group& group) {
      const auto communicator = communicator_of({2, 1, 1}, process, group);
      auto works = post_on_all(*communicator, sum_of_zeros);
      collect(*communicator, works, before);
      if (process == 2) {
        for (auto& promise : posted) promise.get_future().wait();
        return vanish(*group);
      }
      works = post_on_all(*communicator, waiting.post);
      await_posts(*group, 2 + waiting.channel_posts);
      posted[static_cast<size_t>(process)].set_value();
      collect(*communicator, works, during);
      works = post_on_all(*communicator, sum_of_zeros);
      collect(*communicator, works, later);
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      CHECK(peer_error(before[rank]).empty());
      CHECK(peer_error(during[rank]) == "process 2 is gone");
      CHECK(peer_error(later[rank]) == "process 2 is gone");
    }
  }
}

TEST_CASE("a process may vanish at any moment") {
  const auto threads_before = thread_count();
  for (int repeat = 0; repeat < 50; ++repeat) {
    Errors errors(4);
    run_processes(3, [&](int process, const Group& group) {
      const auto communicator = communicator_of({1, 2, 1}, process, group);
      std::atomic<int> posted = 0;
      std::jthread end;
      if (process == 2) {
        end = std::jthread([&, repeat] {
          while (posted < repeat % 10) std::this_thread::yield();  // another moment each time
          vanish(*group);
        });
      }
      for (bool lost = false; !lost;) {
        ++posted;
        auto works = post_on_all(*communicator, sum_of_zeros);
        collect(*communicator, works, errors);
        lost = errors[static_cast<size_t>(communicator->first_rank())] != nullptr;
      }
      posted = 10;
      // All local replicas end, if not in the same collective then in the next one.
      auto works = post_on_all(*communicator, sum_of_zeros);
      collect(*communicator, works, errors);
    });
    for (const auto& error : errors) REQUIRE(peer_error(error) == "process 2 is gone");
  }
  CHECK(thread_count_down_to(threads_before) == threads_before);
}

TEST_CASE("destroying a communicator ends replicas that wait for another process") {
  const auto threads_before = thread_count();
  Errors errors(3);
  std::promise<void> over;
  run_processes(2, [&](int process, const Group& group) {
    auto communicator = communicator_of({2, 1}, process, group);
    if (process == 1) return over.get_future().wait();  // it never posts
    auto works = post_on_all(*communicator, sum_of_zeros);
    await_posts(*group, 2);
    communicator.reset();
    for (size_t i = 0; i < works.size(); ++i) errors[i] = error_of(works[i]);
    over.set_value();
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(errors[rank] != nullptr);
    CHECK_THROWS_WITH(std::rethrow_exception(errors[rank]), "the communicator was destroyed");
  }
  CHECK(thread_count_down_to(threads_before) == threads_before);
}

namespace {

// The algorithm, or message and hint of the UsageError, that each process gets from choose_allreduce().
std::vector<std::string> choices(const std::vector<Allreduce>& wanted) {
  return by_process(static_cast<int>(wanted.size()), [&](int process, const Group& group) {
    const auto p = static_cast<size_t>(process);
    std::string chosen;
    const auto refusal = refusal_and_hint([&] {
      const std::vector<torch::Device> devices(1 + p, torch::kCPU);
      chosen = name_of(kAllreduceNames, choose_allreduce(wanted[p], devices, group.get()));
    });
    return chosen + refusal;
  });
}

}  // namespace

TEST_CASE("between processes on CPUs auto is gloo, and algorithms of one process are refused") {
  using enum Allreduce;
  const std::pair<std::vector<Allreduce>, const char*> cases[] = {
      {{kAuto, kAuto, kAuto}, "gloo"},
      {{kGloo, kGloo}, "gloo"},
      {{kRoot, kRoot},
       "allreduce root sums within one process, but there are 2 processes | use allreduce gloo"},
      {{kTwoShot, kTwoShot}, "allreduce two_shot sums within one process, but there are 2 processes"},
      {{kRing, kRing}, "allreduce ring sums within one process, but there are 2 processes"},
      {{kNccl, kNccl},
       "NCCL cannot join process 0: NCCL works on GPUs only, but the devices include cpu | use "},
      {{kAuto, kAuto, kRing},
       "the communicators differ: process 2 has allreduce ring where process 0 has allreduce auto | "}};
  for (const auto& [wanted, words] : cases) {
    for (const auto& choice : choices(wanted)) CHECK_THAT(choice, StartsWith(words));
  }
}

TEST_CASE("gloo in one process is refused") {
  const std::vector<torch::Device> devices(2, torch::kCPU);
  CHECK_THROWS_WITH(choose_allreduce(Allreduce::kGloo, devices),
                    "allreduce gloo sums between processes, but this process is alone");
  CHECK_THROWS_AS(make_communicator({.devices = devices, .algorithm = Allreduce::kGloo}), UsageError);
}

TEST_CASE("processes that call different things at the start get an error that says so") {
  const std::vector<std::pair<std::function<void(ProcessGroup&)>, std::string>> calls{
      {[](ProcessGroup& group) { group.gather("done"); }, "\"done\""},
      {[](ProcessGroup& group) { group.gather("[1]"); }, "\"[1]\""},
      {[](ProcessGroup& group) { gather_values(&group, "progress", 1); }, "its progress"}};
  for (const auto& [call, told] : calls) {
    const auto found = by_process(2, [&, &first = call](int process, const Group& group) {
      return refusal_of([&] { process == 0 ? first(*group) : void(communicator_of({1, 1}, 1, group)); });
    });
    CHECK(found[1] == fmt::format("process 0 told {} where process 1 told its communicator", told));
  }
}

TEST_CASE("processes tell each other values of any kind, and compare lines") {
  std::vector<std::vector<nlohmann::json>> told(2);
  std::vector<std::string> errors(3);
  run_processes(3, [&](int process, const Group& group) {
    const auto p = static_cast<size_t>(process);
    const nlohmann::json values[] = {nullptr, "a\nb\"", {1, 2.5}};
    const auto all = gather_values(group.get(), "value", values[p]);
    if (p < 2) told[p] = all;
    agree(group.get(), "options", {"a 1", "b \xff"}, "");
    errors[p] = refusal_and_hint([&] {
      agree(group.get(), "options", process == 1 ? Lines{"a 1"} : Lines{"a 1", "b 2"}, "give the same");
    });
  });
  CHECK(told[0] == std::vector<nlohmann::json>{nullptr, "a\nb\"", {1, 2.5}});
  CHECK(told[1] == told[0]);
  CHECK(errors ==
        std::vector<std::string>(3,
                                 "the options differ: process 1 has nothing more where process 0 has "
                                 "b 2 | give the same"));
  CHECK(gather_values(nullptr, "value", 3) == std::vector<nlohmann::json>{3});
  CHECK_NOTHROW(agree(nullptr, "options", {"a 1"}, ""));
}

TEST_CASE("ranks are counted over the processes in order") {
  const RankLayout layout({3, 1, 2}, 2);
  CHECK(layout.process() == 2);
  CHECK(layout.processes() == 3);
  CHECK(layout.world_size() == 6);
  CHECK(layout.first_rank() == 4);
  CHECK(layout.most_replicas() == 3);
  std::vector<int> processes;
  for (int rank = 0; rank < 6; ++rank) processes.push_back(layout.process_of(rank));
  CHECK(processes == std::vector<int>{0, 0, 0, 1, 2, 2});
  for (int process = 0; process < 3; ++process) {
    CHECK(layout.first_rank(process) == std::vector<int>{0, 3, 4}[static_cast<size_t>(process)]);
    CHECK(layout.replicas(process) == std::vector<int>{3, 1, 2}[static_cast<size_t>(process)]);
  }
}
