#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <mutex>
#include <vector>

namespace lockstep::testing {
namespace {

constexpr int kDevices = 8;
constexpr c10::StreamId kPool = 32;  // streams per device, handed out round-robin as torch does for CUDA

using Handle = std::shared_ptr<FakeEvent>;  // streams hold it while they use it
Handle& handle_of(void* event) { return *static_cast<Handle*>(event); }

// Streams live as long as the process, like CUDA's pooled streams.
struct Streams {
  std::mutex mutex;
  std::map<std::pair<int, c10::StreamId>, std::unique_ptr<FakeStream>> by_id;
  std::map<int, c10::StreamId> given;  // streams handed out per device

  FakeStream& at(const c10::Stream& stream) {
    const std::lock_guard lock(mutex);
    auto& found = by_id[{stream.device_index(), stream.id()}];
    if (!found) {
      found = std::make_unique<FakeStream>();
      found->is_default = stream.id() == 0;
    }
    return *found;
  }

  std::vector<FakeStream*> of(int device) {
    const std::lock_guard lock(mutex);
    std::vector<FakeStream*> found;
    for (const auto& [key, stream] : by_id) {
      if (key.first == device) found.push_back(stream.get());
    }
    return found;
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
    return stream_of(device.index(), 1 + streams().given[device.index()]++ % kPool);
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
    event_record(handle_of(*event), fake_stream(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    stream_wait_event(fake_stream(stream), handle_of(event));
  }
  bool queryEvent(void* event) const override { return event_query(*handle_of(event)); }
  void synchronizeEvent(void* event) const override { event_synchronize(*handle_of(event)); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return event_elapsed_ms(*handle_of(from), *handle_of(to));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    stream_synchronize(fake_stream(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    for (auto* stream : streams().of(device)) stream_synchronize(*stream);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
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
