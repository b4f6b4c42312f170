// Helpers for tests of collectives between processes, which are threads of the test.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/support/thread_processes.h>

namespace lockstep::testing {

using Layout = std::vector<int>;  // number of replicas of each process

inline const std::vector<Layout> kLayouts{{1, 1}, {2, 2}, {3, 1}, {1, 3, 2}, {1, 1, 1, 1}};

inline int world_of(const Layout& layout) { return std::accumulate(layout.begin(), layout.end(), 0); }
inline int processes_of(const Layout& layout) { return static_cast<int>(layout.size()); }
inline std::string text_of(const Layout& layout) { return fmt::format("{}", fmt::join(layout, " + ")); }

// The part of one process.
inline std::unique_ptr<Communicator> communicator_of(const Layout& layout, int process,
                                                     const std::shared_ptr<ProcessGroup>& group,
                                                     Trace* trace = nullptr,
                                                     Compress compress = Compress::kNone) {
  const auto replicas = static_cast<size_t>(layout[static_cast<size_t>(process)]);
  return make_communicator({.devices = std::vector<torch::Device>(replicas, torch::kCPU),
                            .process_group = group,
                            .compress = compress,
                            .trace = trace});
}

// Runs task(process, its communicator) in every process.
inline void in_processes(const Layout& layout, const std::function<void(int, Communicator&)>& task) {
  run_processes(processes_of(layout), [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    const auto communicator = communicator_of(layout, process, group);
    task(process, *communicator);
  });
}

}  // namespace lockstep::testing
