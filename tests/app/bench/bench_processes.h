// Starts a benchmark once per process of a world, by hand.
#pragma once

#include <lockstep/tests/app/processes/hand_started.h>

namespace lockstep::testing {

inline const Words kOneEach = {"--devices", "cpu"};  // one replica in each process

// common: the words of all processes, such as {"bench", "allreduce"}. own: flags of each, whose number is the
// world's size.
inline std::vector<Process> bench_world(const Words& common, const std::vector<Words>& own) {
  const auto port = free_port();
  const auto size = static_cast<int>(own.size());
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(program(common + own[static_cast<size_t>(rank)] + place_flags(rank, size, port) +
                                Words{"--timeout", "60", "--threads", "1"}));
  }
  return processes;
}

// All must end with this exit code, print nothing to standard output, and name this reason.
inline void all_refuse(const std::vector<Process>& processes, int exit_code, const std::string& reason) {
  for (const auto& result : run_all(processes)) {
    INFO(result.out << result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Catch::Matchers::ContainsSubstring(reason));
  }
}

}  // namespace lockstep::testing
