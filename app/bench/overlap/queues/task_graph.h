// Tasks that depend on each other. They run in order, or each as soon as its inputs are ready.
//
//   TaskGraph graph;
//   const auto a = graph.add("a = x x", first, {}, [&] { ... });
//   const auto b = graph.add("b = y y", second, {}, [&] { ... });
//   graph.add("c = a + b", first, {a, b}, [&] { ... });
//   graph.run();
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/queues/work_queue.h>

namespace lockstep {

class TaskGraph {
 public:
  using Task = size_t;  // 0, 1, ... in the order of add()

  // after: earlier tasks whose results the task reads or whose inputs it overwrites. The queue outlives the
  // graph. Throws UsageError if a task in `after` was not added.
  Task add(std::string name, WorkQueue& queue, std::vector<Task> after, WorkQueue::Task work);

  // Queues all tasks at once. Tasks of one queue run in the order of add(); each starts when the tasks in its
  // `after` are done. The host does not wait. Returns the seconds until all tasks are done. trace: gets an
  // event per task; may be null.
  double run(Trace* trace = nullptr);

  // Runs one task after another, in the order of add(). Returns the seconds of each.
  std::vector<double> run_serially();

  // Returns the seconds of the slowest chain of dependent tasks, the lower bound for any number of devices.
  // seconds: per task.
  double critical_path(const std::vector<double>& seconds) const;

  size_t size() const { return tasks_.size(); }

 private:
  struct Node {
    std::string name;
    WorkQueue* queue;
    std::vector<Task> after;
    WorkQueue::Task work;
    bool awaited = false;  // by a task of another queue
  };

  std::vector<Node> tasks_;
  std::vector<WorkQueue*> queues_;  // without duplicates
};

}  // namespace lockstep
