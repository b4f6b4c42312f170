// The same training on several layouts: some replicas in each of some processes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/thread_processes.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

using Rows = std::vector<int64_t>;
inline const std::vector<Layout> kLayouts = {{4}, {2, 2}, {3, 1}, {1, 3}, {1, 1, 1, 1}};

inline Rows first_rows(int64_t count) {
  Rows rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

// Takes so many steps of these rows. Returns the mean loss of each.
inline std::vector<double> mean_losses(Trainer& trainer, int steps, const Rows& rows) {
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
  return by_process(processes_of(layout), [&](int process, const Group& group) {
    auto own = options;
    own.threads = own.threads.value_or(1);  // in every layout
    own.devices.assign(static_cast<size_t>(layout[static_cast<size_t>(process)]), torch::kCPU);
    own.process_group = group;
    return task(process, own);
  });
}

// The UsageError of each process's trainer of this model; empty: none.
inline std::vector<std::string> trainer_refusals(const Layout& layout, const TrainerOptions& options,
                                                 const ModelFactory& model) {
  return in_processes(layout, options, [&](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(8));
    return refusal_of([&] { Trainer(model, rows, rows, own); });
  });
}

inline void check_same_sums(const RowSums& a, const RowSums& b) {
  CHECK(a.loss == b.loss);
  CHECK(a.rows == b.rows);
  CHECK(a.weight == b.weight);
  REQUIRE(a.metrics.size() == b.metrics.size());
  for (size_t i = 0; i < a.metrics.size(); ++i) {
    INFO(a.metrics[i].kind.name);
    CHECK(a.metrics[i].sum == b.metrics[i].sum);
    CHECK(a.metrics[i].weight == b.metrics[i].weight);
  }
}

}  // namespace lockstep::testing
