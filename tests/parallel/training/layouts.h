// The same training on several layouts: some replicas in each of some processes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/support/thread_processes.h>

namespace lockstep::testing {

using Batch = std::vector<int64_t>;
using Layout = std::vector<int>;  // number of replicas of each process

inline const std::vector<Layout> kLayouts = {{4}, {2, 2}, {3, 1}, {1, 3}, {1, 1, 1, 1}};

inline std::string text_of(const Layout& layout) {
  std::string text;
  for (const int replicas : layout) text += (text.empty() ? "" : " + ") + std::to_string(replicas);
  return text;
}

inline Batch first_rows(int64_t count) {
  Batch rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

// Takes so many steps of these rows. Returns the mean loss of each.
inline std::vector<double> mean_losses(Trainer& trainer, int steps, const Batch& rows) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    trainer.step(rows);
    const auto sums = trainer.take_sums();
    losses.push_back(sums.loss / static_cast<double>(sums.rows));
  }
  return losses;
}

// Calls task(process, options of this process) in every process. Returns the results by process.
template <class Task>
auto in_processes(const Layout& layout, const TrainerOptions& options, const Task& task) {
  std::vector<std::invoke_result_t<const Task&, int, const TrainerOptions&>> results(layout.size());
  run_processes(static_cast<int>(layout.size()),
                [&](int process, const std::shared_ptr<ProcessGroup>& group) {
                  const auto p = static_cast<size_t>(process);
                  auto own = options;
                  own.threads = own.threads.value_or(1);  // in every layout
                  own.devices.assign(static_cast<size_t>(layout[p]), torch::Device(torch::kCPU));
                  own.process_group = group;
                  results[p] = task(process, own);
                });
  return results;
}

inline void check_same_sums(const TrainSums& a, const TrainSums& b) {
  CHECK(a.loss == b.loss);
  CHECK(a.top1 == b.top1);
  CHECK(a.top5 == b.top5);
  CHECK(a.rows == b.rows);
}

inline void check_same_evaluation(const Evaluation& a, const Evaluation& b) {
  CHECK(a.loss_sum == b.loss_sum);
  CHECK(a.top1 == b.top1);
  CHECK(a.top5 == b.top5);
  CHECK(a.rows == b.rows);
}

}  // namespace lockstep::testing
