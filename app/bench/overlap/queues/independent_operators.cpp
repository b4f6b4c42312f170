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

IndependentOperators::IndependentOperators(torch::Device device, int cores, int64_t operators)
    : device_(device),
      operators_(operators),
      inputs_(static_cast<size_t>(operators)),
      results_(inputs_.size()) {
  const auto allowed = allowed_cores();
  const auto queues = static_cast<int>(std::min<int64_t>(device.is_cpu() ? cores : kStreams, operators));
  const auto add = [&](std::vector<WorkQueue*>& into, int rank, int of) {
    const int threads = std::max(1, cores / of);
    queues_.push_back(make_work_queue({.device = device,
                                       .threads = threads,
                                       .cores = cores_for_worker(allowed, rank, of, threads),
                                       .rank = rank}));
    into.push_back(queues_.back().get());
  };
  add(one_, 0, 1);
  for (int rank = 0; rank < queues; ++rank) add(side_, rank, queues);
}

void IndependentOperators::set_size(int64_t size, uint64_t seed) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (size_t j = 0; j < inputs_.size(); ++j) {
    inputs_[j] = torch::rand({size, size}, random).to(device_);
    results_[j] = torch::empty_like(inputs_[j]);
  }
}

// A CPU thread gets all its operators as one work item, because queueing each takes longer than a small
// operator. The operators are dealt to a GPU's streams one by one, as one program launches them.
double IndependentOperators::seconds(OperatorWay way, int64_t rounds) {
  const auto& queues = of(way);
  const auto all = run_queued(queues, [&] {
    if (!device_.is_cpu()) {
      for (int64_t round = 0; round < rounds; ++round) queue_each(way);
      return;
    }
    for (size_t q = 0; q < queues.size(); ++q) {
      queues[q]->queue("operators", [this, q, rounds, step = queues.size()] {
        for (int64_t round = 0; round < rounds; ++round) {
          for (auto j = static_cast<int64_t>(q); j < operators_; j += static_cast<int64_t>(step)) multiply(j);
        }
      });
    }
  });
  return all / static_cast<double>(rounds);
}

void IndependentOperators::queue_each(OperatorWay way) {
  const auto& queues = of(way);
  for (int64_t j = 0; j < operators_; ++j) {
    queues[static_cast<size_t>(j) % queues.size()]->queue(fmt::format("matmul {}", j),
                                                          [this, j] { multiply(j); });
  }
}

void IndependentOperators::trace_once(OperatorWay way, Trace& trace) {
  for (auto* queue : of(way)) queue->trace_to(&trace);
  run_queued(of(way), [&] { queue_each(way); });
  for (auto* queue : of(way)) queue->trace_to(nullptr);
}

int64_t IndependentOperators::wrong_results(OperatorWay way) {
  for (auto& result : results_) result.fill_(std::numeric_limits<float>::quiet_NaN());
  if (!results_.front().is_cpu())
    results_.front().flatten()[0].item();  // wait: the fills are on another stream
  run_queued(of(way), [&] { queue_each(way); });
  int64_t wrong = 0;
  for (size_t j = 0; j < inputs_.size(); ++j) {
    const auto input = inputs_[j].cpu(), expected = torch::mm(input, input);
    const double error = (results_[j].cpu() - expected).abs().max().item<double>();
    if (!(error <= kOperatorRounding * expected.abs().max().item<double>())) ++wrong;  // NaN is wrong
  }
  return wrong;
}

int64_t independent_operators_bytes(int64_t size, int64_t operators) {
  return 2 * operators * size * size * static_cast<int64_t>(sizeof(float));
}

}  // namespace lockstep
