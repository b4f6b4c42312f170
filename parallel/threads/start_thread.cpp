#include <lockstep/parallel/threads/start_thread.h>

#include <fmt/format.h>

#include <latch>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kHint =
    "use fewer replicas or fewer threads; 'ulimit -a' shows this shell's limits on threads, stack and memory";

}  // namespace

std::thread start_thread(std::function<void()> function) {
  try {
    return std::thread(std::move(function));
  } catch (const std::system_error& error) {
    throw MemoryError(fmt::format("the system starts no other thread: {}", error.code().message()), kHint);
  }
}

void need_threads(int count) {
  std::latch counted(1);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(count));
  try {
    while (threads.size() < threads.capacity()) threads.emplace_back([&] { counted.wait(); });
  } catch (const std::system_error& error) {
    counted.count_down();
    throw MemoryError(fmt::format("{} threads are needed at once, the system gives {}: {}", count,
                                  threads.size(), error.code().message()),
                      kHint);
  }
  counted.count_down();
}

}  // namespace lockstep
