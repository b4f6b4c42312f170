// Collectives between processes, through Gloo.
#include <lockstep/tests/catch.h>
#include <sched.h>
#include <filesystem>
#include <latch>
#include <set>
#include <string>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>
#include <lockstep/tests/skip.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kSizes[] = {0, 1, 2, 997, 100'000};
constexpr torch::ScalarType kAdded[] = {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64};
constexpr torch::ScalarType kNotAdded[] = {torch::kInt16, torch::kUInt64, torch::kComplexFloat,
                                           torch::kFloat8_e5m2};

// Some sandboxes refuse it.
bool batch_policy_allowed() {
  const sched_param priority{};
  return std::async(std::launch::async, [&] { return sched_setscheduler(0, SCHED_BATCH, &priority) == 0; })
      .get();
}

// The scheduling policies of this process's threads.
std::multiset<int> thread_policies() {
  std::multiset<int> policies;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const int policy = sched_getscheduler(std::stoi(task.path().filename()));
    if (policy >= 0) policies.insert(policy);  // else the thread has ended meanwhile
  }
  return policies;
}

std::string peer_error(std::future<void>& done) {
  return message_of<PeerError>([&] { done.get(); });
}

}  // namespace

TEST_CASE("Gloo's reading threads do not interrupt the thread whose lock they want") {
  const int own = sched_getscheduler(0);  // SCHED_OTHER, unless the tests were started with another one
  const auto before = thread_policies();
  std::multiset<int> policies;
  run_joined(2, [&](int process, ProcessGroup& group) {
    const auto channel = open_channel(group);
    auto one = torch::ones({1});
    channel->allreduce_sum(one).get();  // all have opened theirs
    if (process == 0) policies = thread_policies();
    group.gather("looked");
  });
  CHECK(policies.count(own) > 2);
  if (own != SCHED_OTHER || !batch_policy_allowed())
    SKIP_CASE("the tests have another scheduling policy, or may not set one");
  CHECK(policies.count(SCHED_BATCH) ==
        before.count(SCHED_BATCH) + 2);  // one per channel, and no other thread
}

TEST_CASE(
    "sums, broadcasts and gathers between processes are exact, copies also of dtypes that Gloo does not "
    "add") {
  struct Case {
    explicit Case(Tensors all, bool is_added = true)
        : given(std::move(all)), adds(is_added), sums(given.size()), copies(sums), gathered(sums) {}
    Tensors given;  // by process, as the rest
    bool adds;
    Tensors sums, copies, gathered;
  };
  for (const int count : {2, 3}) {
    std::vector<Case> cases;
    for (const auto n : kSizes) {
      for (const auto dtype : kAdded) cases.emplace_back(inputs(count, n, dtype));
      for (const auto dtype : kNotAdded) {
        Tensors given;
        for (int process = 0; process < count; ++process) given.push_back(any_bytes(process, n, dtype));
        cases.emplace_back(given, /*is_added=*/false);
      }
    }
    run_joined(count, [&](int process, ProcessGroup& group) {
      const auto channel = open_channel(group);
      const auto own = static_cast<size_t>(process);
      for (auto& each : cases) {
        const auto& given = each.given[own];
        const auto other_bytes = [&](int64_t rows) {
          return any_bytes(77, rows * given.numel(), given.scalar_type()).view({rows, given.numel()});
        };
        each.sums[own] = given.clone();
        each.copies[own] = process == count - 1 ? given.clone() : other_bytes(1)[0];
        each.gathered[own] = other_bytes(count);
        std::vector<std::future<void>> done;  // all three at the same time
        if (each.adds) done.push_back(channel->allreduce_sum(each.sums[own]));
        done.push_back(channel->broadcast(each.copies[own], count - 1));
        done.push_back(channel->all_gather(given, each.gathered[own]));
        for (auto one = done.rbegin(); one != done.rend(); ++one) one->get();
      }
    });
    for (const auto& each : cases) {
      INFO(count << " processes, " << each.given[0].numel() << " of " << each.given[0].scalar_type());
      if (each.adds) CHECK(all_are(exact_sum(each.given), each.sums));
      CHECK(all_are(each.given.back(), each.copies));
      for (const auto& found : each.gathered) {
        for (int row = 0; row < count; ++row)
          CHECK(same_bits(found[row], each.given[static_cast<size_t>(row)]));
      }
    }
  }
}

TEST_CASE("all_to_all deals the rows of every process") {
  struct Case {
    Tensors given, dealt;  // by process, (processes, n)
  };
  for (const int count : {2, 3}) {
    std::vector<Case> cases;
    for (const auto dtype :
         {torch::kBFloat16, torch::kHalf, torch::kFloat32, torch::kInt16, torch::kComplexFloat}) {
      for (const int64_t n : {0, 1, 997, 50'000}) {
        auto& each = cases.emplace_back();
        for (int process = 0; process < count; ++process) {
          const auto numbers = whole_numbers(process, count * n, torch::kBFloat16);
          each.given.push_back(numbers.to(dtype).view({count, n}));
          each.dealt.push_back(torch::full_like(each.given.back(), 77));
        }
      }
    }
    run_joined(count, [&](int process, ProcessGroup& group) {
      const auto own = static_cast<size_t>(process);
      const auto channel = open_channel(group);
      std::vector<std::future<void>> done;
      for (const auto& each : cases) done.push_back(channel->all_to_all(each.given[own], each.dealt[own]));
      for (auto& one : done) one.get();
    });
    for (const auto& each : cases) {
      INFO(count << " processes, rows of " << each.given[0].size(1) << " " << each.given[0].scalar_type());
      for (int process = 0; process < count; ++process) {
        Tensors rows;
        for (const auto& from : each.given) rows.push_back(from[process]);
        CHECK(same_bits(each.dealt[static_cast<size_t>(process)], torch::stack(rows)));
      }
    }
  }
}

TEST_CASE("tensors may have any shape, none included") {
  Tensors sums(2), gathered(2);
  run_joined(2, [&](int process, ProcessGroup& group) {
    const auto channel = open_channel(group);
    const auto own = static_cast<size_t>(process);
    const auto scalar = torch::tensor(process + 1.5);
    gathered[own] = torch::zeros({2});
    channel->all_gather(scalar, gathered[own]).get();
    sums[own] = torch::full({2, 3, 4}, process + 1);
    channel->allreduce_sum(sums[own]).get();
  });
  CHECK(all_are(torch::tensor({1.5, 2.5}), gathered));
  CHECK(all_are(torch::full({2, 3, 4}, 3), sums));
}

TEST_CASE("channels work side by side, in whatever order the processes post on them") {
  constexpr int kChannels = 3;
  std::vector<Tensors> sums(2, Tensors(kChannels));  // by process and channel
  run_joined(2, [&](int process, ProcessGroup& group) {
    auto channels = open_channels(group, 2);
    for (auto& another : open_channels(group, 1)) channels.push_back(std::move(another));
    auto& own = sums[static_cast<size_t>(process)];
    std::vector<std::future<void>> done;
    for (int i = 0; i < kChannels; ++i) {
      const auto c = static_cast<size_t>(process == 0 ? i : kChannels - 1 - i);
      own[c] = whole_numbers(process + 10 * static_cast<int>(c), 5'000, torch::kFloat64).to(torch::kFloat64);
      done.push_back(channels[c]->allreduce_sum(own[c]));
      done.back().wait_for(std::chrono::seconds(0));
    }
    for (auto& each : done) each.get();
  });
  for (int c = 0; c < kChannels; ++c) {
    const Tensors given{whole_numbers(10 * c, 5'000, torch::kFloat64).to(torch::kFloat64),
                        whole_numbers(1 + 10 * c, 5'000, torch::kFloat64).to(torch::kFloat64)};
    for (const auto& process : sums) CHECK(same_bits(process[static_cast<size_t>(c)], exact_sum(given)));
  }
}

TEST_CASE("a channel refuses what Gloo cannot add, and works on") {
  const auto three = torch::zeros({3});
  const std::pair<std::function<void(Channel&)>, const char*> cases[] = {
      {[](auto& channel) { channel.allreduce_sum(torch::empty({3}, torch::kFloat8_e5m2)); },
       "Gloo cannot add 3 elements of Float8_e5m2"},
      {[](auto& channel) {
         channel.allreduce_sum(torch::zeros({3, 2}).t());
       },
       "6 elements of Float that are not contiguous"},
      {[&](auto& channel) { channel.broadcast(three, 2); }, "broadcast from process 2 of 2"},
      {[&](auto& channel) { channel.broadcast(three, -1); }, "broadcast from process -1 of 2"},
      {[&](auto& channel) {
         channel.all_gather(three, torch::zeros({2, 4}));
       },
       "all_gather of 3 elements of Float from 2 processes into 8 elements"},
      {[&](auto& channel) {
         channel.all_gather(three, torch::zeros({2, 3}, torch::kFloat64));
       },
       "into 6 elements of Double"},
      {[](auto& channel) {
         channel.all_to_all(torch::zeros({4, 1}), torch::zeros({4, 1}));
       },
       "all_to_all of 4 elements of Float between 2 processes into 4 elements of Float"},
      {[](auto& channel) {
         channel.all_to_all(torch::zeros({2, 1}), torch::zeros({2, 2}));
       },
       "all_to_all of 2 elements of Float between 2 processes into 4"},
      {[](auto& channel) { channel.all_to_all(torch::zeros({}), torch::zeros({})); },
       "all_to_all of 1 elements"}};
  std::vector<std::vector<std::string>> messages(2);
  Tensors sums(2);
  run_joined(2, [&](int process, ProcessGroup& group) {
    const auto own = static_cast<size_t>(process);
    const auto channel = open_channel(group);
    for (const auto& [call, words] : cases) {
      messages[own].push_back(refusal_of([&, &refused = call] { refused(*channel); }));
    }
    sums[own] = torch::full({1}, process + 1);
    channel->allreduce_sum(sums[own]).get();
  });
  for (const auto& own : messages) {
    for (size_t i = 0; i < own.size(); ++i) CHECK_THAT(own[i], ContainsSubstring(cases[i].second));
  }
  CHECK(all_are(torch::full({1}, 3), sums));
}

TEST_CASE("abort ends the waits of a channel, now and later, without the other process") {
  std::latch opened(2), aborted(1);  // opened: connecting needs process 0's store
  std::vector<std::string> messages;
  run_joined(2, [&](int process, ProcessGroup& group) {
    const auto channel = open_channel(group);
    opened.arrive_and_wait();
    const auto end = [&](const char* why) { channel->abort(std::make_exception_ptr(PeerError(why))); };
    if (process == 1) {  // posts nothing
      aborted.wait();
      return end("as in the other process");
    }
    auto waits = channel->allreduce_sum(torch::zeros({5}));
    auto waits_too = channel->broadcast(torch::zeros({5}), 1);
    std::jthread another([&] { end("stop"); });
    messages = {peer_error(waits), peer_error(waits_too)};
    end("stop again");
    for (const int64_t n : {5, 0}) {
      auto later = channel->allreduce_sum(torch::zeros({n}));
      messages.push_back(peer_error(later));
    }
    aborted.count_down();
  });
  CHECK(messages == std::vector<std::string>(4, "stop"));
}

TEST_CASE("a process that leaves ends the collectives of the others, which name what they did") {
  std::string first, second;
  const auto errors = run_worlds(worlds_of(2), [&](int process, ProcessGroup& group) {
    const auto channel = open_channel(group);
    channel->allreduce_sum(torch::ones({4})).get();
    if (process == 1) throw Leaves();
    auto done = channel->allreduce_sum(torch::zeros({5}));
    first = peer_error(done);
    auto later = channel->broadcast(torch::zeros({7}), 0);
    second = peer_error(later);
  });
  CHECK(message_of<Error>(errors[0]) == "no error");
  CHECK_THAT(first, ContainsSubstring("allreduce 1 of 5 float32 failed in process 0 of 2: "));
  CHECK_THAT(first, ContainsSubstring("Connection"));
  CHECK_THAT(first, !ContainsSubstring("\n") && !ContainsSubstring("raised") && !ContainsSubstring(".cc"));
  CHECK(second == first);
}

TEST_CASE("a collective that another process never posts ends with the timeout") {
  const auto error = run_beside_silence(
      [](Channel& channel, ProcessGroup&) { channel.broadcast(torch::zeros({5}), 1).get(); });
  CHECK_THAT(
      message_of<PeerError>(error),
      ContainsSubstring("broadcast 0 from process 1 of 5 float32 failed in process 0 of 2: Timed out"));
}

TEST_CASE("a channel is destroyed at once, and a collective that is under way ends without it") {
  std::latch destroyed(1);
  const auto tensor = torch::full({3}, 1);
  run_joined(2, [&](int process, ProcessGroup& group) {
    auto channel = open_channel(group);
    if (process == 1) {
      destroyed.wait();
      channel->allreduce_sum(torch::full({3}, 2)).get();
      return;
    }
    auto done = channel->allreduce_sum(tensor);
    channel.reset();
    destroyed.count_down();
    done.get();
  });
  CHECK(same_bits(tensor, torch::full({3}, 3)));
}
