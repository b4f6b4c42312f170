#include <lockstep/app/bench/overlap/queues/work_queue.h>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <memory>
#include <utility>

#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/replica_thread.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {

WorkQueue::WorkQueue(const WorkQueueOptions& options) : options_(options) {
  if (!device().is_cpu()) {
    stream_ = c10::impl::VirtualGuardImpl(device().type()).getStreamFromGlobalPool(device());
    return;
  }
  thread_.emplace([this] {
    set_intra_op_threads(options_.threads);
    c10::GradMode::set_enabled(false);
    // Before the first parallel region, whose threads inherit the cores.
    if (!options_.cores.empty()) pin_to_cores(options_.cores);
  });
}

void WorkQueue::in_order(Task task) { thread_ ? thread_->post(std::move(task)) : task(); }

void WorkQueue::queue(std::string name, Task work) {
  in_order([this, trace = trace_, name = std::move(name), work = std::move(work)] {
    if (error_) return;
    try {
      run(trace, name, work);
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void WorkQueue::run(Trace* trace, const std::string& name, const Task& work) {
  if (!stream_) {
    const Trace::Span span(trace, name, options_.rank, track());
    return work();
  }
  const c10::StreamGuard current(*stream_);
  const ProfilerRange range(name);
  const auto begin = clock_ ? clock_->mark() : DeviceClock::Mark{};
  work();
  if (clock_) clock_->add_span(name, options_.rank, track(), begin, clock_->mark());
}

WorkQueue::Mark WorkQueue::mark() {
  const auto passed = std::make_shared<std::promise<Work::Done>>();
  in_order([this, passed] {
    const auto event = stream_ ? std::make_shared<c10::Event>(stream_->device_type()) : nullptr;
    if (event) event->record(*stream_);
    passed->set_value(event);
  });
  return passed->get_future().share();
}

void WorkQueue::wait_for(const Mark& mark) {
  in_order([this, mark] {
    const auto event = mark.get();
    if (!event) return;
    stream_ ? event->block(*stream_) : event->synchronize();
  });
}

void WorkQueue::finish() {
  if (const auto event = mark().get()) event->synchronize();
  if (trace_) trace_->resolve();
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void WorkQueue::trace_to(Trace* trace) {
  clock_.reset();
  trace_ = trace;
  if (trace_ && stream_) clock_.emplace(*stream_, *trace_);
}

Trace::Track WorkQueue::track() const {
  if (device().is_cpu()) return options_.copies ? Trace::Track::kCommunication : Trace::Track::kCompute;
  return options_.copies ? Trace::Track::kDeviceCommunication : Trace::Track::kDeviceCompute;
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

torch::Tensor random_matrix(int64_t size, uint64_t seed, torch::Device device) {
  return torch::rand({size, size}, at::make_generator<at::CPUGeneratorImpl>(seed)).to(device);
}

int64_t matrix_bytes(int64_t size, int64_t count) {
  return count * size * size * static_cast<int64_t>(sizeof(float));
}

double relative_error(const torch::Tensor& result, const torch::Tensor& expected) {
  return ((result.cpu() - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace lockstep
