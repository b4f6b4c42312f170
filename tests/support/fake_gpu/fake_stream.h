// Streams, events and memory of the fake GPUs (fake_gpu.h). A stream is a thread that runs the queued work in
// order. It can be captured by the rules of cudaStreamCaptureModeThreadLocal: what CUDA refuses is refused
// here with CUDA's error code, and in the same cases the whole capture becomes invalid
// (https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/cuda-graphs.html).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <lockstep/parallel/threads/task_thread.h>

namespace lockstep::testing {

// cudaError_t
enum FakeCudaError {
  kIllegalState = 401,
  kIllegalAddress = 700,
  kAssert = 710,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
};

// A captured graph: the work queued on a stream, and on streams that joined it, during the capture, and the
// memory allocated meanwhile.
struct FakeCapture;

// A stream's native handle points to this.
struct FakeStream {
  TaskThread queue;
  bool is_default = false;

  // Only during a capture.
  std::shared_ptr<FakeCapture> capture;
  int64_t last = 0;    // number of the stream's last captured work
  int64_t joined = 0;  // number up to which the capture's first stream waits for this stream
};

// Each record() makes a new version, which is over when the stream reaches it.
struct FakeEvent {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0;
  int64_t over = 0;
  std::chrono::steady_clock::time_point time{};

  // The capture and stream of the last record(), if the stream was being captured.
  std::shared_ptr<FakeCapture> capture;
  FakeStream* stream = nullptr;
  int64_t number = 0;  // number of the captured work before it
};

void launch(FakeStream& stream, std::function<void()> work);

// As CUDA's functions of these names.
void event_record(const std::shared_ptr<FakeEvent>& event, FakeStream& stream);
void stream_wait_event(FakeStream& stream, const std::shared_ptr<FakeEvent>& event);
bool event_query(FakeEvent& event);
void event_synchronize(FakeEvent& event);
double event_elapsed_ms(FakeEvent& from, FakeEvent& to);
void stream_synchronize(FakeStream& stream);
void stream_begin_capture(FakeStream& stream);
std::shared_ptr<FakeCapture> stream_end_capture(FakeStream& stream);
bool stream_is_capturing(FakeStream& stream);
void graph_launch(const std::shared_ptr<FakeCapture>& graph, FakeStream& stream);

// Memory as in torch's caching allocator: it belongs to the stream on which it is allocated, and is free when
// that stream reaches the point of its release. It is overwritten then. In a capture the graph owns it.
struct FakeBlock;
FakeBlock* allocate(FakeStream& stream, size_t bytes);
void* address_of(const FakeBlock& block);
void release(FakeBlock* block);

// From now on every call fails with this error, as after an error in a kernel. 0: calls succeed again.
void break_gpus(int code);

// From now on `count` allocations in captures succeed, then memory is out. Negative: no limit.
void limit_captured_allocations(int count);

}  // namespace lockstep::testing
