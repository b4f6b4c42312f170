// WorkQueue with threads on the CPU and with streams of the tests' fake GPU.
#include <ATen/Parallel.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

#include <lockstep/app/bench/overlap/queues/work_queue.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using lockstep::testing::fake_gpu;
using lockstep::testing::launch;

namespace {

// Records what several threads did, in order.
class Journal {
 public:
  void add(int entry) {
    const std::lock_guard lock(mutex_);
    entries_.push_back(entry);
  }
  std::vector<int> entries() const {
    const std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> entries_;
};

std::unique_ptr<WorkQueue> queue_on(torch::Device device, int rank = 0, bool copies = false) {
  return std::make_unique<WorkQueue>(WorkQueueOptions{.device = device, .rank = rank, .copies = copies});
}

// Adds work that ends when the gate is opened: in the thread, or on the queue's stream.
void queue_gated(WorkQueue& queue, std::shared_future<void> gate, Journal& journal, int entry) {
  queue.queue("gated", [&queue, gate, &journal, entry] {
    const auto work = [gate, &journal, entry] {
      gate.wait();
      journal.add(entry);
    };
    queue.device().is_cpu() ? work() : launch(current_stream(queue.device()), work);
  });
}

}  // namespace

TEST_CASE("queued work runs later and in order, and a queue waits for another's mark") {
  const auto device = GENERATE(torch::Device(torch::kCPU), fake_gpu(0));
  const auto other = GENERATE(torch::Device(torch::kCPU), fake_gpu(1));
  INFO(device << " waits for " << other);
  const auto later = queue_on(device), earlier = queue_on(other), bystander = queue_on(device);
  // Many transfers between threads, so that a missing wait shows.
  const auto let_others_run = [&] {
    for (int i = 0; i < 50; ++i) bystander->finish();
  };
  for (int round = 0; round < 20; ++round) {
    Journal journal;
    std::promise<void> open, opened;
    const auto gate = open.get_future().share(), no_gate = opened.get_future().share();
    opened.set_value();
    queue_gated(*earlier, gate, journal, 1);
    queue_gated(*earlier, no_gate, journal, 2);
    const auto mark = earlier->mark();
    let_others_run();
    REQUIRE(journal.entries().empty());
    // A stream that waits for a thread's mark blocks the host, so another thread must open the gate.
    const bool host_waits = !device.is_cpu() && other.is_cpu();
    std::thread opener;
    if (host_waits) {
      opener = std::thread([&] {
        let_others_run();
        open.set_value();
      });
    }
    later->wait_for(mark);
    queue_gated(*later, no_gate, journal, 3);
    if (!host_waits) {
      let_others_run();
      open.set_value();
    }
    later->finish();
    if (opener.joinable()) opener.join();
    REQUIRE(journal.entries() == std::vector<int>{1, 2, 3});
    earlier->finish();
  }
}

TEST_CASE("a CPU queue has its own thread, with its cores and number of threads") {
  const int core = allowed_cores().back();
  WorkQueue queue({.threads = 3, .cores = {core}});
  std::thread::id id;
  int threads = 0;
  std::vector<int> cores;
  bool gradients = true;
  queue.queue("look", [&] {
    id = std::this_thread::get_id();
    threads = at::get_num_threads();
    cores = allowed_cores();
    gradients = at::GradMode::is_enabled();
  });
  queue.finish();
  CHECK(id != std::this_thread::get_id());
  CHECK(threads == 3);
  CHECK(cores == std::vector<int>{core});
  CHECK_FALSE(gradients);
}

TEST_CASE("finish() rethrows an error; later work is skipped, but marks are passed") {
  const auto queue = queue_on(torch::kCPU);
  bool done = false;
  queue->queue("throws", [] { throw std::runtime_error("of the work"); });
  queue->queue("behind", [&] { done = true; });
  queue->mark().wait();
  CHECK_THROWS_WITH(queue->finish(), "of the work");
  CHECK_FALSE(done);
  queue->queue("again", [&] { done = true; });
  queue->finish();
  CHECK(done);
}

TEST_CASE("run_queued leaves no work behind when queueing or work throws, and rethrows the first error") {
  const auto one = queue_on(torch::kCPU), two = queue_on(torch::kCPU);
  std::atomic<int> done = 0;
  CHECK_THROWS_WITH(run_queued({one.get(), two.get()},
                               [&] {
                                 one->queue("throws", [] { throw std::runtime_error("of the first"); });
                                 two->queue("goes on", [&] { ++done; });
                                 throw std::runtime_error("of the queueing");
                               }),
                    "of the queueing");
  CHECK(done == 1);
  CHECK(run_queued({one.get(), two.get()}, [&] { one->queue("again", [&] { ++done; }); }) > 0);
  CHECK(done == 2);
}

TEST_CASE("a traced queue adds events on its track until tracing ends") {
  const auto device = GENERATE(torch::Device(torch::kCPU), fake_gpu(0));
  const bool copies = GENERATE(false, true);
  const auto queue = queue_on(device, 3, copies);
  Trace trace;
  queue->queue("before", [] {});
  queue->finish();
  queue->trace_to(&trace);
  queue->queue("one", [] {});
  queue->queue("two", [] {});
  queue->finish();
  queue->trace_to(nullptr);
  queue->queue("after", [] {});
  queue->finish();
  const auto events = trace.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "one");
  CHECK(events[1].name == "two");
  CHECK(events[1].rank == 3);
  CHECK(events[0].end <= events[1].begin);
  using Track = Trace::Track;
  const auto expected = device.is_cpu() ? (copies ? Track::kCommunication : Track::kCompute)
                                        : (copies ? Track::kDeviceCommunication : Track::kDeviceCompute);
  CHECK(events[0].track == expected);
}
