// Processes that are threads of one test: each joins through the real store and opens real Gloo channels.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/parallel/collectives/gloo/store_server.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/gloo/listeners.h>

namespace lockstep::testing {

// In torch 2.11 c10d's flight recorder, one for all groups of a real process, is no place for several
// processes' threads at the same time.
inline const int kNoFlightRecorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

// Thrown by a process that leaves the others without a word.
struct Leaves {};

inline World loopback_world(int process, int processes, uint16_t port) {
  return {.process = process,
          .processes = processes,
          .process_on_host = process,
          .processes_on_host = processes,
          .master_host = "127.0.0.1",
          .master_port = port};
}

inline JoinOptions within(int milliseconds) { return {.timeout = std::chrono::milliseconds(milliseconds)}; }

// The exception that each call has thrown; null: none. Each runs in a thread of its own.
using Calls = std::vector<std::function<void()>>;
inline std::vector<std::exception_ptr> call_side_by_side(const Calls& calls) {
  std::vector<std::exception_ptr> errors(calls.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < calls.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          calls[i]();
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  }
  return errors;
}

// The first connection of c10d asks the name servers for a name, and gives up asking if none answers. No
// test's timeout is to pass meanwhile.
inline void ask_name_servers_before() {
  static const bool kAsked = (StoreServer(), true);
  static_cast<void>(kAsked);
}

// A group that lives as long as its process's task, for what wants to share it.
inline std::shared_ptr<ProcessGroup> shared(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

// Joins every world, and leaves it again after the task.
using JoinedTask = std::function<void(int process, ProcessGroup& group)>;
inline std::vector<std::exception_ptr> run_worlds(const std::vector<World>& worlds, const JoinedTask& task,
                                                  const JoinOptions& options = within(60'000)) {
  ask_name_servers_before();
  Calls calls;
  for (const auto& world : worlds) {
    calls.push_back([&, world] {
      const auto group = join_process_group(world, options);
      task(world.process, *group);
    });
  }
  return call_side_by_side(calls);
}

inline std::vector<World> worlds_of(int count) {
  std::vector<World> worlds;
  const auto port = free_loopback_port();
  for (int process = 0; process < count; ++process) worlds.push_back(loopback_world(process, count, port));
  return worlds;
}

// Runs two processes with a timeout of a second. Process 1 is silent once all channels are open. Returns
// what task(channel, group), in process 0, has thrown. (A name server that is slow can make them miss
// each other: then they try again.)
using TaskBesideSilence = std::function<void(Channel& channel, ProcessGroup& group)>;
inline std::exception_ptr run_beside_silence(const TaskBesideSilence& task) {
  std::exception_ptr error;
  bool met = false;
  for (int attempt = 0; !met && attempt < 20; ++attempt) {
    std::promise<void> ended;
    run_worlds(
        worlds_of(2),
        [&](int process, ProcessGroup& group) {
          const auto channel = open_channel(group);
          if (process == 1) {
            ended.get_future().wait_for(std::chrono::seconds(60));
            throw Leaves();
          }
          met = true;
          try {
            task(*channel, group);
          } catch (...) {
            error = std::current_exception();
          }
          ended.set_value();
          throw Leaves();
        },
        within(1000));
  }
  return error;
}

// As run_worlds(); rethrows the first error.
inline void run_joined(int count, const JoinedTask& task, const JoinOptions& options = within(60'000)) {
  for (const auto& error : run_worlds(worlds_of(count), task, options)) {
    if (error) std::rethrow_exception(error);
  }
}

// The message of an error of this type; else what there is instead.
template <typename Wanted>
std::string message_of(const std::exception_ptr& error) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const Wanted& wanted) {
    return wanted.message();
  } catch (const std::exception& other) {
    return std::string("another type of error: ") + other.what();
  } catch (const Leaves&) {
    return "it left";
  }
}

// The message of what the call throws.
template <typename Wanted>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (...) {
    return message_of<Wanted>(std::current_exception());
  }
  return "no error";
}

}  // namespace lockstep::testing
