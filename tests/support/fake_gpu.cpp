#include <lockstep/tests/support/fake_gpu.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDevices = 8;

// Each record() is a version; it is over when the stream came to it.
struct FakeEvent {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0;
  int64_t over = 0;
  Clock::time_point time{};

  void finish(int64_t version) {
    const std::lock_guard lock(mutex);
    over = std::max(over, version);
    time = Clock::now();
    changed.notify_all();
  }
  void await(int64_t version) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over >= version; });
  }
};

using Handle = std::shared_ptr<FakeEvent>;  // streams keep it while they have to do with it
Handle& handle_of(void* event) { return *static_cast<Handle*>(event); }

// Streams live as long as the process, as CUDA's pooled ones do.
struct Streams {
  std::mutex mutex;
  std::map<std::pair<int, c10::StreamId>, std::unique_ptr<FakeStream>> by_id;
  c10::StreamId next = 1;  // 0 is a device's default stream

  FakeStream& at(const c10::Stream& stream) {
    const std::lock_guard lock(mutex);
    auto& found = by_id[{stream.device_index(), stream.id()}];
    if (!found) found = std::make_unique<FakeStream>();
    return *found;
  }
};

Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

thread_local int current_device = 0;
thread_local std::map<int, c10::StreamId> current_streams;

c10::Stream stream_of(int index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, fake_gpu(index), id);
}

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return torch::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return fake_gpu(std::exchange(current_device, device.index()));
  }
  c10::Device getDevice() const override { return fake_gpu(current_device); }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    return stream_of(device.index(), current_streams[device.index()]);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    const std::lock_guard lock(streams().mutex);
    return stream_of(device.index(), streams().next++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = current_streams[stream.device_index()];
    return stream_of(stream.device_index(), std::exchange(current, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &streams().at(stream); }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Handle*>(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new Handle(std::make_shared<FakeEvent>());
    const auto handle = handle_of(*event);
    int64_t version = 0;
    {
      const std::lock_guard lock(handle->mutex);
      version = ++handle->recorded;
    }
    launch(stream, [handle, version] { handle->finish(version); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    launch(stream, [handle = handle_of(event), version = recorded(event)] { handle->await(version); });
  }
  bool queryEvent(void* event) const override {
    const auto& handle = handle_of(event);
    const std::lock_guard lock(handle->mutex);
    return handle->over >= handle->recorded;
  }
  void synchronizeEvent(void* event) const override { handle_of(event)->await(recorded(event)); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(handle_of(to)->time - handle_of(from)->time).count();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const auto end = std::make_shared<FakeEvent>();
    launch(stream, [end] { end->finish(1); });
    end->await(1);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

 private:
  static int64_t recorded(void* event) {
    const auto& handle = handle_of(event);
    const std::lock_guard lock(handle->mutex);
    return handle->recorded;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard)

}  // namespace

FakeStream& fake_stream(const c10::Stream& stream) { return streams().at(stream); }

torch::Tensor on_fake_gpu(const torch::Tensor& host, int index) {
  const auto device = fake_gpu(index);
  return at::for_blob(host.data_ptr(), host.sizes())
      .deleter([host](void*) {})
      .options(host.options().device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace lockstep::testing
