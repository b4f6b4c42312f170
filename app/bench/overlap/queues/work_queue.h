// A queue of work that runs later, in order: a stream on a GPU; on a CPU a thread with its own cores. With it
// one experiment runs on both.
//
//   const double seconds = run_queued({&compute, &copier}, [&] {
//     compute.queue("matmul 3", [&] { at::mm_out(y, x, x); });
//     copier.wait_for(compute.mark());  // the host goes on at once
//     copier.queue("copy 3", [&] { copy_bytes(host, y); });
//   });
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// A position in a queue. It is passed when all work queued before it is done. Thread-safe.
class WorkMark {
 public:
  virtual ~WorkMark() = default;
  virtual void wait() = 0;  // blocks the calling thread
  // Work queued on `later` from now on waits for the mark. The calling thread waits only if the mark belongs
  // to a ThreadQueue.
  virtual void hold(const c10::Stream& later) = 0;
};

struct WorkQueueOptions {
  torch::Device device = torch::kCPU;
  int threads = 1;              // on a CPU: per operator
  std::vector<int> cores = {};  // on a CPU: the cores of its thread
  int rank = 0;                 // in a trace
  bool copies = false;          // in a trace: whether its work is copying, not computing
};

// Not thread-safe: one thread at a time calls it.
class WorkQueue {
 public:
  using Work = std::function<void()>;
  using Mark = std::shared_ptr<WorkMark>;

  virtual ~WorkQueue() = default;

  torch::Device device() const { return options_.device; }

  // On a CPU `work` runs later, in the queue's thread. On a GPU it runs at once, with the queue's stream as
  // the current one, and what it launches runs later. If work throws, later work is skipped until finish().
  virtual void queue(std::string name, Work work) = 0;
  virtual Mark mark() = 0;
  virtual void wait_for(const Mark& mark) = 0;

  // Waits until all work is done. Rethrows its error.
  virtual void finish() = 0;

  // Adds an event per work queued from now on to the trace, which outlives finish(). null ends tracing.
  virtual void trace_to(Trace* trace) = 0;

 protected:
  explicit WorkQueue(WorkQueueOptions options) : options_(std::move(options)) {}
  // The trace's track of this queue's work.
  Trace::Track track() const;

  const WorkQueueOptions options_;
};

std::unique_ptr<WorkQueue> make_work_queue(const WorkQueueOptions& options);

// Calls queue_work(), which queues work on these queues, and waits until all of it is done. Returns the
// seconds. Rethrows the first error, after all queues have finished.
double run_queued(const std::vector<WorkQueue*>& queues, const std::function<void()>& queue_work);

// Copies a contiguous tensor to another of the same number of bytes: in the calling thread if both are on the
// host, otherwise on the current stream, without waiting if the memory allows it.
void copy_bytes(const torch::Tensor& to, const torch::Tensor& from);

}  // namespace lockstep
