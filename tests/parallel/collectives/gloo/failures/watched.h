// Watches of several processes on one store, for tests of FailureWatch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/gloo/c10d_store.h>
#include <lockstep/parallel/collectives/gloo/failures/failure_watch.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>

namespace lockstep::testing {

inline constexpr std::chrono::milliseconds kNever{60'000};
// Only the reports that are there count.
inline const WatchLimits kNoGrace{.poll = std::chrono::milliseconds(1),
                                  .grace = std::chrono::milliseconds(0),
                                  .stay = kNever,
                                  .answer = kNever};
// All reports come.
inline const WatchLimits kPatient{
    .poll = std::chrono::milliseconds(1), .grace = kNever, .stay = kNever, .answer = kNever};

// One store, and a watch of each process that is there.
struct Watched {
  explicit Watched(int count,
                   c10::intrusive_ptr<c10d::Store> its_store = c10::make_intrusive<c10d::HashStore>())
      : processes(static_cast<size_t>(count)), store(std::move(its_store)) {
    for (int i = 0; i < count; ++i) {
      auto& own = processes[static_cast<size_t>(i)];
      own.host = "node";
      own.pid = 100 + i;
    }
  }

  FailureBoard board(int process) const {
    return {std::make_shared<C10dStore>(C10dStore{store}), process, static_cast<int>(processes.size())};
  }

  std::unique_ptr<FailureWatch> watch(int process, const WatchLimits& limits,
                                      bool serves_store = false) const {
    return std::make_unique<FailureWatch>(board(process), WatchOptions{.process = process,
                                                                       .serves_store = serves_store,
                                                                       .processes = processes,
                                                                       .store = {.place = "here:1"},
                                                                       .limits = limits});
  }

  std::vector<Presence> processes;
  c10::intrusive_ptr<c10d::Store> store;
};

inline std::shared_ptr<PostedCollectives> waiting_for(uint64_t number) {
  auto posted = std::make_shared<PostedCollectives>();
  posted->begin({.number = number, .name = "allreduce", .elements = 3, .type = "float32"});
  return posted;
}

inline const std::exception_ptr kLostPeer = std::make_exception_ptr(PeerError("words of Gloo"));

// The error that ends a process that has lost another one.
inline std::string verdict_of(FailureWatch& watch) {
  return message_of<PeerError>(watch.explain(kLostPeer, ""));
}

}  // namespace lockstep::testing
