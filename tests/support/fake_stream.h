// Streams, events and memory of the tests' own GPUs (fake_gpu.h). A stream is a thread that does what was
// queued, in order and in its own time. It can be captured, by CUDA's rules for captures of a thread's own
// (cudaStreamCaptureModeThreadLocal): what CUDA refuses is refused here with CUDA's number, and in the same
// cases it makes the whole capture invalid
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

// What was queued on a stream, and on those that joined it, while it was captured; and the memory that was
// allocated meanwhile.
struct FakeCapture;

// What a stream's native handle points to.
struct FakeStream {
  TaskThread queue;
  bool is_default = false;

  // While it is captured.
  std::shared_ptr<FakeCapture> capture;
  int64_t last = 0;    // number of what was captured last of this stream
  int64_t joined = 0;  // of that, what the stream in which the capture began waits for
};

// Each record() is a version; it is over when the stream came to it.
struct FakeEvent {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0;
  int64_t over = 0;
  std::chrono::steady_clock::time_point time{};

  // Where it was recorded last, if that stream was captured then.
  std::shared_ptr<FakeCapture> capture;
  FakeStream* stream = nullptr;
  int64_t number = 0;  // what it stands behind
};

void launch(FakeStream& stream, std::function<void()> work);

// CUDA's functions of these names.
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

// Memory as torch's caching allocator has it: of the stream on which it is allocated, and free for others as
// soon as that stream comes to where it was released, which is when it is overwritten here. In a capture it
// is the graph's.
struct FakeBlock;
FakeBlock* allocate(FakeStream& stream, size_t bytes);
void* address_of(const FakeBlock& block);
void release(FakeBlock* block);

// From now on every call fails with this error, as after a kernel that went wrong; 0: the GPUs are well.
void break_gpus(int code);

// From now on so many allocations in captures succeed; after them memory is out. Negative: it never is.
void limit_captured_allocations(int count);

}  // namespace lockstep::testing
