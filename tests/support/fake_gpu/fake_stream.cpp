#include <lockstep/tests/support/fake_gpu/fake_stream.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace lockstep::testing {

struct FakeCapture {
  const std::thread::id thread = std::this_thread::get_id();
  FakeStream* origin = nullptr;
  std::vector<FakeStream*> streams;
  bool valid = true;
  bool ended = false;
  int64_t numbers = 0;  // numbers given to captured work
  std::vector<std::function<void()>> work;
  std::vector<std::unique_ptr<char[]>> memory;
};

struct FakeBlock {
  FakeStream* stream = nullptr;
  char* data = nullptr;
  size_t bytes = 0;
  std::unique_ptr<char[]> memory;      // null: the graph owns it
  std::weak_ptr<FakeCapture> capture;  // the graph that owns the memory
};

namespace {

// Guards everything about captures; held only briefly.
std::mutex& mutex() {
  static auto* all = new std::mutex;
  return *all;
}

std::atomic<int> broken = 0;
std::atomic<int> captured_allocations = -1;

thread_local std::shared_ptr<FakeCapture> own_capture;  // of the calling thread

const char* words(int code) {
  switch (code) {
    case kIllegalAddress:
      return "an illegal memory access was encountered";
    case kStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case kStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case kStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case kStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case kCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default:
      return "the call is not allowed here";
  }
}

[[noreturn]] void fail(int code) {
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code,
                              fmt::format("CUDA error: {} ({})", words(code), code));
}

// An error makes the whole capture invalid.
[[noreturn]] void fail(FakeCapture& capture, int code) {
  capture.valid = false;
  fail(code);
}

void require_well() {
  if (broken != 0) fail(broken);
}

void require_valid(const FakeCapture& capture) {
  if (!capture.valid) fail(kStreamCaptureInvalidated);
}

// For calls that a thread may not make while it captures.
void require_no_own_capture() {
  if (own_capture && !own_capture->ended) fail(*own_capture, kStreamCaptureUnsupported);
}

void keep(FakeStream& stream, std::function<void()> work) {
  require_valid(*stream.capture);
  stream.capture->work.push_back(std::move(work));
  stream.last = ++stream.capture->numbers;
}

void overwrite(char* data, size_t bytes) { std::memset(data, 0xFF, bytes); }  // floats: NaN

void finish(FakeEvent& event, int64_t version) {
  const std::lock_guard lock(event.mutex);
  event.over = std::max(event.over, version);
  event.time = std::chrono::steady_clock::now();
  event.changed.notify_all();
}

void await(FakeEvent& event, int64_t version) {
  std::unique_lock lock(event.mutex);
  event.changed.wait(lock, [&] { return event.over >= version; });
}

int64_t version_of(FakeEvent& event) {
  const std::lock_guard lock(event.mutex);
  return event.recorded;
}

// Checks an event that the host queries: it must not be part of a capture.
void require_plain(const FakeEvent& event) {
  require_well();
  if (event.capture) {
    if (!event.capture->ended) fail(*event.capture, kCapturedEvent);
    fail(kCapturedEvent);
  }
  require_no_own_capture();
}

// The event is in a capture, the stream perhaps not yet.
void wait_within(FakeStream& stream, const FakeEvent& event) {
  auto& capture = *event.capture;
  if (capture.ended) fail(kCapturedEvent);
  require_valid(capture);
  if (stream.is_default) fail(capture, kStreamCaptureImplicit);
  if (stream.capture && stream.capture != event.capture) fail(*stream.capture, kStreamCaptureMerge);
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.joined = 0;
    capture.streams.push_back(&stream);
  }
  stream.last = ++capture.numbers;
  if (&stream == capture.origin) event.stream->joined = std::max(event.stream->joined, event.number);
}

}  // namespace

void launch(FakeStream& stream, std::function<void()> work) {
  const std::lock_guard lock(mutex());
  require_well();
  if (stream.capture) return keep(stream, std::move(work));
  stream.queue.post(std::move(work));
}

void event_record(const std::shared_ptr<FakeEvent>& event, FakeStream& stream) {
  const std::lock_guard lock(mutex());
  require_well();
  event->capture = stream.capture;
  event->stream = &stream;
  if (stream.capture) {
    require_valid(*stream.capture);
    // CUDA would record it in the graph, where a caller outside cannot use it.
    if (stream.capture->thread != std::this_thread::get_id()) fail(*stream.capture, kStreamCaptureIsolation);
    event->number = stream.last;
    return;
  }
  int64_t version = 0;
  {
    const std::lock_guard event_lock(event->mutex);
    version = ++event->recorded;
  }
  stream.queue.post([event, version] { finish(*event, version); });
}

void stream_wait_event(FakeStream& stream, const std::shared_ptr<FakeEvent>& event) {
  const std::lock_guard lock(mutex());
  require_well();
  if (event->capture) return wait_within(stream, *event);
  if (stream.capture) fail(*stream.capture, kStreamCaptureIsolation);
  stream.queue.post([event, version = version_of(*event)] { await(*event, version); });
}

bool event_query(FakeEvent& event) {
  const std::lock_guard lock(mutex());
  require_plain(event);
  const std::lock_guard event_lock(event.mutex);
  return event.over >= event.recorded;
}

void event_synchronize(FakeEvent& event) {
  {
    const std::lock_guard lock(mutex());
    require_plain(event);
  }
  await(event, version_of(event));
  require_well();
}

double event_elapsed_ms(FakeEvent& from, FakeEvent& to) {
  const std::lock_guard lock(mutex());
  require_plain(from);
  require_plain(to);
  return std::chrono::duration<double, std::milli>(to.time - from.time).count();
}

void stream_synchronize(FakeStream& stream) {
  const auto end = std::make_shared<FakeEvent>();
  {
    const std::lock_guard lock(mutex());
    require_well();
    if (stream.capture) fail(*stream.capture, kStreamCaptureUnsupported);
    require_no_own_capture();
    stream.queue.post([end] { finish(*end, 1); });
  }
  await(*end, 1);
  require_well();
}

void stream_begin_capture(FakeStream& stream) {
  const std::lock_guard lock(mutex());
  require_well();
  if (stream.is_default) fail(kStreamCaptureUnsupported);
  if (stream.capture) fail(kIllegalState);
  stream.capture = std::make_shared<FakeCapture>();
  stream.capture->origin = &stream;
  stream.capture->streams = {&stream};
  own_capture = stream.capture;
}

std::shared_ptr<FakeCapture> stream_end_capture(FakeStream& stream) {
  const std::lock_guard lock(mutex());
  const auto capture = stream.capture;
  if (!capture) fail(kIllegalState);
  if (capture->origin != &stream) fail(*capture, kStreamCaptureUnmatched);
  if (capture->thread != std::this_thread::get_id()) fail(*capture, kStreamCaptureWrongThread);
  const bool unjoined = std::any_of(capture->streams.begin(), capture->streams.end(), [&](auto* other) {
    return other != &stream && other->joined < other->last;
  });
  for (auto* other : capture->streams) other->capture.reset();
  capture->ended = true;
  own_capture.reset();
  require_well();
  require_valid(*capture);
  if (unjoined) fail(kStreamCaptureUnjoined);
  return capture;
}

bool stream_is_capturing(FakeStream& stream) {
  const std::lock_guard lock(mutex());
  return stream.capture != nullptr;
}

void graph_launch(const std::shared_ptr<FakeCapture>& graph, FakeStream& stream) {
  const std::lock_guard lock(mutex());
  require_well();
  if (stream.capture) fail(*stream.capture, kStreamCaptureUnsupported);
  for (const auto& work : graph->work) stream.queue.post([graph, &work] { work(); });
}

FakeBlock* allocate(FakeStream& stream, size_t bytes) {
  const std::lock_guard lock(mutex());
  require_well();
  if (stream.capture) {
    require_valid(*stream.capture);
    if (captured_allocations >= 0 && captured_allocations-- <= 0) {
      captured_allocations = 0;
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory");
    }
  } else {
    require_no_own_capture();
  }
  auto memory = std::make_unique<char[]>(std::max<size_t>(bytes, 1));
  auto* data = memory.get();
  overwrite(data, bytes);
  if (!stream.capture) return new FakeBlock{&stream, data, bytes, std::move(memory), {}};
  stream.capture->memory.push_back(std::move(memory));
  return new FakeBlock{&stream, data, bytes, nullptr, stream.capture};
}

void* address_of(const FakeBlock& block) { return block.data; }

void release(FakeBlock* released) {
  const std::unique_ptr<FakeBlock> block(released);
  const std::lock_guard lock(mutex());
  auto* const data = block->data;
  const auto bytes = block->bytes;
  if (!block->memory) {
    const auto capture = block->capture.lock();
    if (capture && !capture->ended && capture->valid) {
      capture->work.push_back([data, bytes] { overwrite(data, bytes); });
    }
  } else if (block->stream->capture) {
    block->stream->capture->memory.push_back(std::move(block->memory));
  } else {
    const std::shared_ptr<char[]> memory = std::move(block->memory);
    block->stream->queue.post([memory, bytes] { overwrite(memory.get(), bytes); });
  }
}

void break_gpus(int code) { broken = code; }
void limit_captured_allocations(int count) { captured_allocations = count; }

}  // namespace lockstep::testing
