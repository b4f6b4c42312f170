#include <lockstep/app/bench/overlap/queues/independent_operators.h>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {
namespace {

constexpr int64_t kStreams = 8;  // more would wait for the same multiprocessors
constexpr double kOperatorRounding = 1e-4;

}  // namespace

Operands make_operands(torch::Device device, int64_t operators, int64_t size, uint64_t seed) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
  Operands made;
  for (int64_t j = 0; j < operators; ++j) {
    made.inputs.push_back(torch::rand({size, size}, random).to(device));
    made.results.push_back(torch::empty_like(made.inputs.back()));
  }
  return made;
}

IndependentOperators::IndependentOperators(torch::Device device, int cores, int64_t operators,
                                           bool side_by_side)
    : device_(device) {
  const auto most = static_cast<int>(std::min<int64_t>(device.is_cpu() ? cores : kStreams, operators));
  const int count = side_by_side ? most : 1;
  const int threads = std::max(1, cores / count);
  for (int rank = 0; rank < count; ++rank) {
    queues_.push_back(std::make_unique<WorkQueue>(
        WorkQueueOptions{.device = device,
                         .threads = threads,
                         .cores = cores_for_worker(allowed_cores(), rank, count, threads),
                         .rank = rank}));
  }
}

std::vector<WorkQueue*> IndependentOperators::pointers() const {
  std::vector<WorkQueue*> all;
  for (const auto& queue : queues_) all.push_back(queue.get());
  return all;
}

// A CPU thread gets all its operators as one work item, because queueing each takes longer than a small
// operator. The operators are dealt to a GPU's streams one by one, as one program launches them.
double IndependentOperators::seconds(int64_t rounds) {
  const auto all = run_queued(pointers(), [&] {
    if (!device_.is_cpu()) {
      for (int64_t round = 0; round < rounds; ++round) queue_each();
      return;
    }
    for (size_t q = 0; q < queues_.size(); ++q) {
      queues_[q]->queue("operators", [this, q, rounds] {
        for (int64_t round = 0; round < rounds; ++round) {
          for (size_t j = q; j < operands_.inputs.size(); j += queues_.size()) multiply(j);
        }
      });
    }
  });
  return all / static_cast<double>(rounds);
}

void IndependentOperators::queue_each() {
  for (size_t j = 0; j < operands_.inputs.size(); ++j) {
    queues_[j % queues_.size()]->queue(fmt::format("matmul {}", j), [this, j] { multiply(j); });
  }
}

void IndependentOperators::trace_once(Trace& trace) {
  for (const auto& queue : queues_) queue->trace_to(&trace);
  run_queued(pointers(), [&] { queue_each(); });
  for (const auto& queue : queues_) queue->trace_to(nullptr);
}

int64_t IndependentOperators::wrong_results() {
  for (auto& result : operands_.results) result.fill_(std::numeric_limits<float>::quiet_NaN());
  if (!device_.is_cpu())
    operands_.results.front().flatten()[0].item();  // wait: the fills are on another stream
  run_queued(pointers(), [&] { queue_each(); });
  int64_t wrong = 0;
  for (size_t j = 0; j < operands_.inputs.size(); ++j) {
    const auto input = operands_.inputs[j].cpu();
    const double error = relative_error(operands_.results[j], torch::mm(input, input));
    if (!(error <= kOperatorRounding)) ++wrong;  // NaN is wrong
  }
  return wrong;
}

}  // namespace lockstep
