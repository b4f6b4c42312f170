// Starts threads, with a clear error when the system cannot start one.
#pragma once

#include <functional>
#include <thread>

namespace lockstep {

// Message and hint of the error for a thread that cannot start.
inline constexpr const char* kNoThread = "the system cannot start another thread";
inline constexpr const char* kNoThreadHint =
    "use fewer replicas or fewer threads; 'ulimit -a' shows this shell's limits on threads, stack and memory";

// Starts a thread. Throws MemoryError if the system cannot.
std::thread start_thread(std::function<void()> function);

// Throws MemoryError, with both numbers, if the process cannot have `count` more threads at the same time.
// Call it before OpenMP starts threads: OpenMP ends the process when it cannot start one.
void check_threads_available(int count);

}  // namespace lockstep
