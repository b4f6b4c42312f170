// Tasks that depend on each other, run in order or each as soon as its inputs are ready.
//
//   TaskGraph graph;
//   const auto a = graph.add("a = x x", first, {}, [&] { ... });
//   const auto b = graph.add("b = y y", second, {}, [&] { ... });
//   graph.add("c = a + b", first, {a, b}, [&] { ... });
//   graph.run();
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/work_queue.h>

namespace lockstep {

class TaskGraph {
 public:
  using Task = size_t;  // 0, 1, ... in the order of add()

  // after: earlier tasks whose results it reads, or whose inputs it overwrites. The queue outlives the graph.
  // Throws UsageError for one that was not added.
  Task add(std::string name, WorkQueue& queue, std::vector<Task> after, WorkQueue::Work work);

  // Queues all at once: tasks of one queue run in the order of add(), and each starts when those it comes
  // after are done. Returns the seconds until all are.
  double run();

  // One after another, in the order of add(); each is waited for. Returns the seconds of each.
  std::vector<double> run_serially();

  // No number of devices can be faster than the slowest chain of tasks, each of which needs the one before.
  // seconds: of each task.
  double critical_path(const std::vector<double>& seconds) const;

  size_t size() const { return tasks_.size(); }
  const std::string& name(Task task) const { return tasks_.at(task).name; }

 private:
  struct Node {
    std::string name;
    WorkQueue* queue;
    std::vector<Task> after;
    WorkQueue::Work work;
  };

  std::vector<Node> tasks_;
  std::vector<WorkQueue*> queues_;  // each once
};

}  // namespace lockstep
