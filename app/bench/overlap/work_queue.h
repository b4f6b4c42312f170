// Work that is queued now and done later, in order: what a stream is on a GPU and, on a processor, a thread
// with cores of its own. One experiment serves both.
//
//   const double seconds = run_queued({&compute, &copier}, [&] {
//     compute.queue("product 3", [&] { at::mm_out(y, x, x); });
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

// A place in a queue's work: passed when all that was queued before it is done. From any thread.
class WorkMark {
 public:
  virtual ~WorkMark() = default;
  virtual void wait() = 0;  // of the calling thread
  // What is queued on `later` from now on waits. The host does not, unless the mark is a thread's.
  virtual void hold(const c10::Stream& later) = 0;
};

struct WorkQueueOptions {
  torch::Device device = torch::kCPU;
  int threads = 1;              // on a processor: of an operator
  std::vector<int> cores = {};  // on a processor: that its thread keeps to
  int rank = 0;                 // in a trace
  bool copies = false;          // in a trace: its work is copying, not computing
};

// Driven from one thread at a time.
class WorkQueue {
 public:
  using Work = std::function<void()>;
  using Mark = std::shared_ptr<WorkMark>;

  virtual ~WorkQueue() = default;

  torch::Device device() const { return options_.device; }

  // On a processor `work` runs later, in the queue's thread; on a GPU it runs here and now, with the queue's
  // stream as the current one, and what it launches runs later. After work that threw, the rest is left out
  // until finish().
  virtual void queue(std::string name, Work work) = 0;
  virtual Mark mark() = 0;
  virtual void wait_for(const Mark& mark) = 0;

  // Waits until all is done, and rethrows what the work threw.
  virtual void finish() = 0;

  // What is queued from now on is an event of this trace, which outlives finish(); null: of none.
  virtual void trace_to(Trace* trace) = 0;

 protected:
  explicit WorkQueue(WorkQueueOptions options) : options_(std::move(options)) {}
  // Its work's place in a trace.
  Trace::Track track() const;

  const WorkQueueOptions options_;
};

std::unique_ptr<WorkQueue> make_work_queue(const WorkQueueOptions& options);

// Calls queue_work(), which queues work on these, and waits until all of it is done. Returns the seconds.
// What throws first is rethrown, but only when no queue has work under way that could still use what the
// caller is about to take down.
double run_queued(const std::vector<WorkQueue*>& queues, const std::function<void()>& queue_work);

// The bytes of a contiguous tensor into another one of as many: in the calling thread where both are on the
// host, else on the current stream, without waiting where the memory allows it.
void copy_bytes(const torch::Tensor& to, const torch::Tensor& from);

}  // namespace lockstep
