#include <lockstep/app/bench/overlap/queues/work_queue.h>

#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/replica_thread.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/parallel/timing/phase_span.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

class ThreadMark final : public WorkMark {
 public:
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return passed_; });
  }
  void hold(const c10::Stream&) override { wait(); }
  void pass() {
    const std::lock_guard lock(mutex_);
    passed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool passed_ = false;
};

class EventMark final : public WorkMark {
 public:
  explicit EventMark(const c10::Stream& stream) : event_(stream.device_type()) { event_.record(stream); }
  void wait() override { event_.synchronize(); }
  void hold(const c10::Stream& later) override { event_.block(later); }

 private:
  c10::Event event_;
};

void set_up_thread(const WorkQueueOptions& options) {
  set_intra_op_threads(options.threads);
  c10::GradMode::set_enabled(false);
  // Before the first parallel region, whose threads inherit the cores.
  if (!options.cores.empty()) pin_to_cores(options.cores);
}

class ThreadQueue final : public WorkQueue {
 public:
  explicit ThreadQueue(const WorkQueueOptions& options)
      : WorkQueue(options), thread_([options] { set_up_thread(options); }) {}

  void queue(std::string name, Work work) override {
    thread_.post([this, trace = trace_, name = std::move(name), work = std::move(work)] {
      if (error_) return;
      const Trace::Span span(trace, name, options_.rank, track());
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  }

  Mark mark() override {
    auto mark = std::make_shared<ThreadMark>();
    thread_.post([mark] { mark->pass(); });
    return mark;
  }

  void wait_for(const Mark& mark) override {
    thread_.post([mark] { mark->wait(); });
  }

  void finish() override {
    mark()->wait();
    if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }

  void trace_to(Trace* trace) override { trace_ = trace; }

 private:
  Trace* trace_ = nullptr;
  std::exception_ptr error_;  // written by the thread; read by the caller after a mark
  TaskThread thread_;         // last: it uses the members above
};

c10::Stream new_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

class StreamQueue final : public WorkQueue {
 public:
  explicit StreamQueue(const WorkQueueOptions& options)
      : WorkQueue(options), stream_(new_stream(options.device)) {}

  void queue(std::string name, Work work) override {
    const c10::StreamGuard current(stream_);
    const ProfilerRange range(name);
    const auto begin = clock_ ? clock_->mark() : DeviceClock::Mark{};
    work();
    if (clock_) clock_->add_span(std::move(name), options_.rank, track(), begin, clock_->mark());
  }

  Mark mark() override { return std::make_shared<EventMark>(stream_); }
  void wait_for(const Mark& mark) override { mark->hold(stream_); }

  void finish() override {
    stream_.synchronize();
    if (trace_) trace_->resolve();
  }

  void trace_to(Trace* trace) override {
    clock_.reset();
    trace_ = trace;
    if (trace_) clock_.emplace(stream_, *trace_);
  }

 private:
  const c10::Stream stream_;
  Trace* trace_ = nullptr;
  std::optional<DeviceClock> clock_;
};

}  // namespace

Trace::Track WorkQueue::track() const {
  if (device().is_cpu()) return options_.copies ? Trace::Track::kCommunication : Trace::Track::kCompute;
  return options_.copies ? Trace::Track::kDeviceCommunication : Trace::Track::kDeviceCompute;
}

std::unique_ptr<WorkQueue> make_work_queue(const WorkQueueOptions& options) {
  if (options.device.is_cpu()) return std::make_unique<ThreadQueue>(options);
  return std::make_unique<StreamQueue>(options);
}

double run_queued(const std::vector<WorkQueue*>& queues, const std::function<void()>& queue_work) {
  std::exception_ptr first;
  const auto note_error = [&first](const auto& action) {
    try {
      action();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  };
  Stopwatch watch;
  note_error(queue_work);
  for (auto* queue : queues) note_error([queue] { queue->finish(); });
  const double seconds = watch.lap();
  if (first) std::rethrow_exception(first);
  return seconds;
}

void copy_bytes(const torch::Tensor& to, const torch::Tensor& from) {
  if (to.is_cpu() && from.is_cpu()) {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  } else {
    to.copy_(from, /*non_blocking=*/true);
  }
}

}  // namespace lockstep
