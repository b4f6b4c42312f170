// Calls of c10d that may never return.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <lockstep/parallel/threads/start_thread.h>

namespace lockstep {

class LateCall : public std::runtime_error {
 public:
  LateCall() : std::runtime_error("no answer") {}
};

// Returns what `call` returns, and throws what it throws. It runs in a thread of its own. When the limit has
// passed, throws LateCall and abandons the thread: so call must own all that it uses. c10d's store waits for
// each answer without a limit, for ever if the server was stopped.
template <typename Call>
auto call_within(std::chrono::milliseconds limit, Call call) {
  using Result = std::invoke_result_t<Call&>;
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(call));
  auto result = task->get_future();
  auto thread = start_thread([task] { (*task)(); });
  if (result.wait_for(limit) == std::future_status::ready) {
    thread.join();
    return result.get();
  }
  thread.detach();
  throw LateCall();
}

}  // namespace lockstep
