// Builds the models of a process's replicas alike, for a loop of your own:
//
//   auto nets = build_replicas(workers.size(), [] { return MyNet(); });  // before workers.run()
//
// LibTorch's layers draw their initial weights from the one generator of the process. Replicas that are built
// in their own threads share it, and draw in the order in which the threads come. Then rank 0's weights,
// which GradientSync::attach() gives to all, would differ from run to run.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

namespace lockstep {

// Calls build() `count` times, one after another in the calling thread. Each call draws the same numbers from
// torch's default generator of the CPU, which afterwards is as after the first call. Threads that call it at
// the same time take turns; build() may call it, too. Throws UsageError when count is negative, and what
// build() throws.
void with_same_draws(int count, const std::function<void()>& build);

// Returns the results of `count` calls of build(), such as a module or its holder, as with_same_draws() calls
// it. Call it in the thread that drives the replicas, before their threads run. In several processes it is
// called in each.
template <class Build>
std::vector<std::invoke_result_t<Build&>> build_replicas(int count, Build build) {
  std::vector<std::invoke_result_t<Build&>> replicas;
  with_same_draws(count, [&] { replicas.push_back(build()); });
  return replicas;
}

}  // namespace lockstep
