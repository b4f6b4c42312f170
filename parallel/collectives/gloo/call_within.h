// Calls of c10d that may never return.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <lockstep/support/start_thread.h>

namespace lockstep {

// For threads that call c10d's store: it writes to its socket without MSG_NOSIGNAL. Afterwards a server that
// has gone is an error in this thread; else SIGPIPE ends a program that does not ignore it.
inline void block_sigpipe() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

class TimedOutCall : public std::runtime_error {
 public:
  TimedOutCall() : std::runtime_error("no answer") {}
};

class GivenUpCall : public std::runtime_error {
 public:
  GivenUpCall() : std::runtime_error("given up") {}
};

// Returns what `call` returns, and throws what it throws. It runs in a thread of its own. Throws TimedOutCall
// when the limit has passed, and GivenUpCall when `given_up` says so, which is asked four times a second.
// Both abandon the thread: so call must own all that it uses. c10d's store waits for each answer without a
// limit, for ever if the server was stopped.
template <typename Call>
auto call_within(
    std::chrono::milliseconds limit, Call call,
    const std::function<bool()>& given_up = [] { return false; }) {
  using Clock = std::chrono::steady_clock;
  using Result = std::invoke_result_t<Call&>;
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(call));
  auto result = task->get_future();
  auto thread = start_thread([task] {
    block_sigpipe();
    (*task)();
  });
  const auto end = Clock::now() + limit;
  const auto next_look = [&] { return std::min(end, Clock::now() + std::chrono::milliseconds(250)); };
  while (result.wait_until(next_look()) != std::future_status::ready) {
    const bool stopped = given_up();
    if (!stopped && Clock::now() < end) continue;
    thread.detach();
    if (stopped) throw GivenUpCall();
    throw TimedOutCall();
  }
  thread.join();
  return result.get();
}

}  // namespace lockstep
