#include <lockstep/support/start_thread.h>

#include <fmt/format.h>

#include <latch>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {

std::thread start_thread(std::function<void()> function) {
  try {
    return std::thread(std::move(function));
  } catch (const std::system_error& error) {
    throw MemoryError(fmt::format("{}: {}", kNoThread, error.code().message()), kNoThreadHint);
  }
}

void check_threads_available(int count) {
  std::latch counted(1);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(count));
  try {
    while (threads.size() < threads.capacity()) threads.emplace_back([&] { counted.wait(); });
  } catch (const std::system_error& error) {
    counted.count_down();
    throw MemoryError(fmt::format("{} more threads are needed, the system starts only {}: {}", count,
                                  threads.size(), error.code().message()),
                      kNoThreadHint);
  }
  counted.count_down();
}

}  // namespace lockstep
