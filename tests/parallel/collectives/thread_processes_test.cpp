// The processes that other tests run as threads keep the promises of parallel/process_group.h and channel.h.
#include <lockstep/tests/catch.h>
#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Returns what the wait throws: the type and the message; "nothing" without an error.
std::string thrown_by(std::future<void> done) {
  try {
    done.get();
  } catch (const PeerError& error) {
    return std::string("PeerError: ") + error.message();
  } catch (const std::logic_error& error) {
    return std::string("logic_error: ") + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

torch::Tensor number(int value) { return torch::full({3}, value, torch::kFloat32); }

}  // namespace

TEST_CASE("thread processes: gather gives everybody the texts of all, by process, every time") {
  const auto found = by_process(3, [](int process, const Group& group) {
    std::vector<std::string> texts;
    for (int round = 0; round < 100; ++round) {
      for (auto& text : group->gather(std::to_string(10 * process + round))) texts.push_back(std::move(text));
    }
    return texts;
  });
  std::vector<std::string> expected;
  for (int round = 0; round < 100; ++round) {
    for (int process = 0; process < 3; ++process) expected.push_back(std::to_string(10 * process + round));
  }
  for (const auto& texts : found) CHECK(texts == expected);
  const auto world = thread_process_groups(3);
  for (int process = 0; process < 3; ++process) {
    CHECK(world[static_cast<size_t>(process)]->world().process == process);
    CHECK(world[static_cast<size_t>(process)]->world().processes == 3);
  }
}

TEST_CASE("thread processes: channels sum, broadcast, gather and deal, each in its own order") {
  std::vector<std::vector<torch::Tensor>> results(3);
  run_processes(3, [&](int process, const Group& group) {
    const auto channels = open_channels(*group, 2);
    const auto sum = number(1 << process);
    const auto copy = number(process);
    const auto gathered = torch::zeros({3, 3});
    const auto dealt = torch::zeros({3, 2});
    std::vector<std::future<void>> done(4);
    // Each process begins with another channel.
    if (process == 1) done[1] = channels[1]->broadcast(copy, 2);
    done[0] = channels[0]->allreduce_sum(sum);
    if (process != 1) done[1] = channels[1]->broadcast(copy, 2);
    done[2] = channels[0]->all_gather(number(process + 5), gathered);
    done[3] = channels[1]->all_to_all(torch::arange(6, torch::kFloat32).view({3, 2}) + 10 * process, dealt);
    for (auto& one : done) one.get();
    results[static_cast<size_t>(process)] = {sum, copy, gathered, dealt};
  });
  for (int process = 0; process < 3; ++process) {
    const auto& of_process = results[static_cast<size_t>(process)];
    const auto row =
        torch::tensor({2.F * static_cast<float>(process), 2.F * static_cast<float>(process) + 1});
    CHECK(of_process[3].equal(torch::stack({row, row + 10, row + 20})));
    CHECK(of_process[0].equal(number(7)));
    CHECK(of_process[1].equal(number(2)));
    CHECK(of_process[2].equal(torch::stack({number(5), number(6), number(7)})));
  }
}

TEST_CASE("thread processes: abort ends the waits of one process, a closed channel those of its peers") {
  const auto world = thread_process_groups(2);
  std::vector<std::unique_ptr<Channel>> channels(2);
  {
    std::jthread other([&] { channels[1] = std::move(open_channels(*world[1], 1).front()); });
    channels[0] = std::move(open_channels(*world[0], 1).front());
  }
  auto aborted = channels[0]->allreduce_sum(number(1));
  channels[0]->abort(std::make_exception_ptr(std::runtime_error("stop")));
  channels[0]->abort(std::make_exception_ptr(std::runtime_error("a later one")));
  CHECK(thrown_by(std::move(aborted)) == "stop");
  CHECK(thrown_by(channels[0]->allreduce_sum(number(1))) == "stop");
  auto waiting = channels[1]->allreduce_sum(number(1));
  CHECK(waiting.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  channels[0].reset();
  CHECK(thrown_by(std::move(waiting)) == "PeerError: process 0 left a channel");
  CHECK(thrown_by(channels[1]->allreduce_sum(number(1))) == "PeerError: process 0 left a channel");
}

TEST_CASE("thread processes: what differs or breaks the rules is a logic_error") {
  for (const auto& error : by_process(2, [](int process, const Group&group) {
         return thrown_by(open_channel(*group)->allreduce_sum(torch::zeros({3 + process})));
       })) {
    CHECK(error == "logic_error: processes disagree: allreduce of 3 Float and allreduce of 4 Float");
  }
  CHECK_THROWS_AS(
      run_processes(2, [](int process, const Group& group) { open_channels(*group, 1 + process); }),
      std::logic_error);
  CHECK_THROWS_AS(run_processes(2,
                                [](int, const Group& group) {
                                  const auto channel = open_channel(*group);
                                  channel->allreduce_sum(torch::zeros({4, 3}).t());
                                }),
                  std::logic_error);
}

TEST_CASE("thread processes: the first error of a task ends all waits and is thrown; one process has none") {
  CHECK_THROWS_WITH(run_processes(3,
                                  [](int process, const Group& group) {
                                    if (process == 1) throw std::runtime_error("mine");
                                    group->gather("");  // would wait for ever
                                  }),
                    "mine");
  run_processes(1, [](int process, const Group& group) {
    if (process != 0 || group) throw std::logic_error("one process needs no group");
  });
}
