#include <lockstep/app/bench/overlap/queues/task_graph.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {

TaskGraph::Task TaskGraph::add(std::string name, WorkQueue& queue, std::vector<Task> after,
                               WorkQueue::Task work) {
  for (const auto task : after) {
    if (task >= size()) {
      throw UsageError(
          fmt::format("task {} ({}) comes after task {}, which was not added", size(), name, task));
    }
  }
  if (std::find(queues_.begin(), queues_.end(), &queue) == queues_.end()) queues_.push_back(&queue);
  for (const auto task : after) tasks_[task].awaited |= tasks_[task].queue != &queue;
  tasks_.push_back(
      {.name = std::move(name), .queue = &queue, .after = std::move(after), .work = std::move(work)});
  return size() - 1;
}

double TaskGraph::run(Trace* trace) {
  const auto trace_to = [this](Trace* into) {
    for (auto* queue : queues_) queue->trace_to(into);
  };
  if (trace) trace_to(trace);
  const double seconds = run_queued(queues_, [this] {
    std::vector<WorkQueue::Mark> done(size());
    for (size_t task = 0; task < size(); ++task) {
      const auto& node = tasks_[task];
      for (const auto input : node.after) {
        if (tasks_[input].queue != node.queue) node.queue->wait_for(done[input]);
      }
      node.queue->queue(node.name, node.work);
      if (node.awaited) done[task] = node.queue->mark();
    }
  });
  if (trace) trace_to(nullptr);
  return seconds;
}

std::vector<double> TaskGraph::run_serially() {
  std::vector<double> seconds;
  for (const auto& task : tasks_) {
    seconds.push_back(run_queued({task.queue}, [&] { task.queue->queue(task.name, task.work); }));
  }
  return seconds;
}

double TaskGraph::critical_path(const std::vector<double>& seconds) const {
  std::vector<double> end;
  double longest = 0;
  for (size_t task = 0; task < size(); ++task) {
    double start = 0;
    for (const auto input : tasks_[task].after) start = std::max(start, end[input]);
    end.push_back(start + seconds.at(task));
    longest = std::max(longest, end.back());
  }
  return longest;
}

}  // namespace lockstep
