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

#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/parallel/timing/phase_span.h>

namespace lockstep {

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
  using Task = std::function<void()>;
  // A position in a queue, passed when all work queued before it is done. get() waits for the thread of a
  // CPU's queue, and returns the event of a GPU's.
  using Mark = std::shared_future<Work::Done>;

  explicit WorkQueue(const WorkQueueOptions& options);

  torch::Device device() const { return options_.device; }

  // On a CPU `work` runs later, in the queue's thread. On a GPU it runs at once, with the queue's stream as
  // the current one, and what it launches runs later. If work throws, later work is skipped until finish().
  void queue(std::string name, Task work);
  Mark mark();
  // Work queued from now on waits for the mark. So does the calling thread where a stream waits for a thread.
  void wait_for(const Mark& mark);

  // Waits until all work is done. Rethrows its error.
  void finish();

  // Adds an event per work queued from now on to the trace, which outlives finish(). null ends tracing.
  void trace_to(Trace* trace);

 private:
  void in_order(Task task);
  void run(Trace* trace, const std::string& name, const Task& work);
  Trace::Track track() const;

  const WorkQueueOptions options_;
  Trace* trace_ = nullptr;
  std::optional<c10::Stream> stream_;  // of a GPU
  std::optional<DeviceClock> clock_;   // of a traced stream
  std::exception_ptr error_;           // written by the work; read after a mark
  std::optional<TaskThread> thread_;   // of a CPU; last: it uses the members above
};

// Calls queue_work(), which queues work on these queues, and waits until all of it is done. Returns the
// seconds. Rethrows the first error, after all queues have finished.
double run_queued(const std::vector<WorkQueue*>& queues, const std::function<void()>& queue_work);

// Copies a contiguous tensor to another of the same number of bytes: in the calling thread if both are on the
// host, otherwise on the current stream, without waiting if the memory allows it.
void copy_bytes(const torch::Tensor& to, const torch::Tensor& from);

// (size, size) float, uniform in [0, 1), drawn on the host, so that all kinds of devices get the same
// numbers.
torch::Tensor random_matrix(int64_t size, uint64_t seed, torch::Device device);

// Bytes of so many (size, size) float matrices.
int64_t matrix_bytes(int64_t size, int64_t count);

// The largest difference, relative to the largest element of `expected`, which is on the host.
double relative_error(const torch::Tensor& result, const torch::Tensor& expected);

}  // namespace lockstep
