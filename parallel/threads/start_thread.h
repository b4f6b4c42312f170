// Threads, or an error that says why there is none: a limit on threads or on memory does not show before.
#pragma once

#include <functional>
#include <thread>

namespace lockstep {

// Throws MemoryError where the system gives this process no other thread.
std::thread start_thread(std::function<void()> function);

// Throws MemoryError, with both numbers, where so many threads cannot live at once beside those there are.
// For those that OpenMP is going to start, which ends the process where it gets none.
void need_threads(int count);

}  // namespace lockstep
