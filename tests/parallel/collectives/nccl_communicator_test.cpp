// nccl_communicator_cuda.cpp, linked against a fake NCCL and fake GPUs.
#include <lockstep/tests/catch.h>

#include <fmt/ranges.h>
#include <future>
#include <thread>

#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/timing/phase_span.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;

namespace {

std::vector<torch::Device> gpus(int count, int first = 0) {
  std::vector<torch::Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(fake_gpu(first + i));
  return devices;
}

std::unique_ptr<Communicator> nccl(int world, milliseconds timeout = std::chrono::minutes(5),
                                   Trace* trace = nullptr) {
  return make_nccl_communicator({.devices = gpus(world),
                                 .world_size = world,
                                 .id = make_nccl_id(),
                                 .timeout = timeout,
                                 .trace = trace});
}

Tensors to_gpus(const Tensors& host) {
  Tensors tensors;
  for (size_t i = 0; i < host.size(); ++i) tensors.push_back(on_fake_gpu(host[i], static_cast<int>(i)));
  return tensors;
}

void synchronize(int world) {
  for (int i = 0; i < world; ++i) current_stream(fake_gpu(i)).synchronize();
}

std::string message_of(const std::exception_ptr& error) {
  return refusal_and_hint<PeerError>([&] {
    if (error) std::rethrow_exception(error);
  });
}

}  // namespace

TEST_CASE("NCCL: sums, broadcasts and gathers reach every rank") {
  reset_fake_nccl();
  for (int world = 1; world <= 4; ++world) {
    const auto communicator = nccl(world);
    CHECK(communicator->world_size() == world);
    CHECK(communicator->local_size() == world);
    for (const int64_t n : {0, 1, 7, 4099}) {
      for (const auto dtype :
           {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64, torch::kInt8, torch::kUInt32,
            torch::kUInt64, torch::kBool, torch::kComplexFloat, torch::kComplexDouble}) {
        INFO("world " << world << ", " << n << " of " << dtype);
        const auto host = inputs(world, n, dtype);
        const auto expected = exact_sum(host);
        const auto tensors = to_gpus(host);
        allreduce_all(*communicator, tensors);
        synchronize(world);
        CHECK(all_are(expected, host));

        const auto sources = inputs(world, n, dtype);
        const auto on_gpus = to_gpus(sources);
        const auto from_last = sources.back().clone();
        const auto gathered = room_for(sources);
        const auto stacked = torch::stack(sources);
        gather_all(*communicator, on_gpus, to_gpus(gathered));
        synchronize(world);
        CHECK(all_are(stacked, gathered));
        broadcast_all(*communicator, on_gpus, world - 1);
        synchronize(world);
        CHECK(all_are(from_last, sources));
      }
    }
  }
  CHECK(fake_nccl().destroyed == 1 + 2 + 3 + 4);  // closed, not aborted
  CHECK(fake_nccl().aborted == 0);
}

TEST_CASE("NCCL: parts of any length reach their owners and all others, in their place") {
  reset_fake_nccl();
  for (int world = 1; world <= 4; ++world) {
    const auto communicator = nccl(world);
    // Equal parts; unequal ones; none for the first rank and the last one; none at all.
    for (const auto& lengths :
         std::vector<std::vector<int64_t>>{{5, 5, 5, 5}, {3, 1, 4, 2}, {0, 7, 1, 0}, {0, 0, 0, 0}}) {
      PartBounds bounds{0};
      for (int rank = 0; rank < world; ++rank)
        bounds.push_back(bounds.back() + lengths[static_cast<size_t>(rank)]);
      for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        INFO("world " << world << ", bounds " << fmt::format("{}", fmt::join(bounds, ", ")));
        const auto host = inputs(world, bounds.back(), dtype);
        const auto expected = exact_sum(host);
        const auto tensors = to_gpus(host);  // without kernels: nothing can be copied
        run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.reduce_scatter(tensors[rank], bounds);
        });
        synchronize(world);
        for (size_t rank = 0; rank < host.size(); ++rank) {  // what belongs to others is undefined
          const auto own = expected.slice(0, bounds[rank], bounds[rank + 1]);
          CHECK(host[rank].slice(0, bounds[rank], bounds[rank + 1]).equal(own));
          host[rank].slice(0, 0, bounds[rank]).zero_();
          host[rank].slice(0, bounds[rank + 1]).zero_();
        }
        run_on_all(*communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.gather_parts(tensors[rank], bounds);
        });
        synchronize(world);
        CHECK(all_are(expected, host));
      }
    }
  }
  CHECK(fake_nccl().aborted == 0);
}

TEST_CASE("NCCL: a failed part of several ends all ranks") {
  reset_fake_nccl();
  const auto communicator = nccl(2);
  const auto tensors = to_gpus(inputs(2, 10, torch::kFloat32));
  fake_nccl().collective = ncclInternalError;
  auto work = communicator->endpoint(1).reduce_scatter(tensors[1], {0, 3, 10});
  CHECK_THAT(refusal_and_hint<PeerError>([&] { work.wait(); }),
             ContainsSubstring("reduce_scatter on privateuseone:1 (collective 1) failed: internal error"));
}

TEST_CASE(
    "NCCL: a collective starts after what the caller's stream holds, and what follows starts after it") {
  reset_fake_nccl();
  constexpr int kWorld = 2;
  const auto communicator = nccl(kWorld);
  const Tensors host{torch::zeros({5}), torch::zeros({5})};
  const auto tensors = to_gpus(host);
  std::vector<torch::Tensor> seen(kWorld);
  std::promise<void> gate;
  const auto open = gate.get_future().share();
  for (int rank = 0; rank < kWorld; ++rank) {
    launch(current_stream(fake_gpu(rank)), [&, rank] {  // the gradient is still being computed
      open.wait();
      host[static_cast<size_t>(rank)].fill_(rank + 1);
    });
  }
  allreduce_all(*communicator, tensors);  // would never return if the host waited for the GPUs
  for (int rank = 0; rank < kWorld; ++rank) {
    launch(current_stream(fake_gpu(rank)),
           [&, rank] { seen[static_cast<size_t>(rank)] = host[static_cast<size_t>(rank)].clone(); });
  }
  gate.set_value();
  synchronize(kWorld);
  CHECK(all_are(torch::full({5}, 3.F), seen));
}

TEST_CASE("NCCL: ranks of several processes are one world") {
  reset_fake_nccl();
  const auto id = make_nccl_id();
  std::vector<std::unique_ptr<Communicator>> processes(2);
  {
    std::vector<std::jthread> threads;
    for (int process = 0; process < 2; ++process) {  // with two GPUs each
      threads.emplace_back([&, process] {
        processes[static_cast<size_t>(process)] = make_nccl_communicator(
            {.devices = gpus(2, 2 * process), .first_rank = 2 * process, .world_size = 4, .id = id});
      });
    }
  }
  const auto host = inputs(4, 100, torch::kFloat32);
  const auto expected = exact_sum(host);
  const auto tensors = to_gpus(host);
  std::vector<Work> works;
  for (size_t rank = 0; rank < 4; ++rank) {
    auto& endpoint = processes[rank / 2]->endpoint(static_cast<int>(rank % 2));
    CHECK(endpoint.rank() == static_cast<int>(rank));
    works.push_back(endpoint.allreduce_sum(tensors[rank]));
  }
  for (auto& work : works) work.wait();
  synchronize(4);
  CHECK(all_are(expected, host));
}

TEST_CASE("NCCL: devices that it cannot join are refused with a hint") {
  const auto problem = [](const std::vector<torch::Device>& devices) {
    return refusal_and_hint([&] { std::rethrow_exception(nccl_problem(devices)); });
  };
  CHECK_THAT(problem({fake_gpu(0), fake_gpu(1), fake_gpu(0)}),
             ContainsSubstring("the devices list privateuseone:0 more than once | use allreduce two_shot"));
  CHECK_THAT(problem({fake_gpu(0), torch::kCPU}),
             ContainsSubstring("on GPUs only, but the devices include cpu"));
  CHECK_THAT(refusal_and_hint<UsageError>(
                 [] { make_nccl_communicator({.devices = gpus(1), .world_size = 1, .id = "short"}); }),
             ContainsSubstring("an NCCL id has 128 bytes, this one has 5"));
  CHECK(nccl_problem(gpus(8)) == nullptr);
}

TEST_CASE("auto chooses NCCL for several distinct GPUs only") {
  const torch::Device cpu(torch::kCPU);
  CHECK(choose_allreduce(Allreduce::kAuto, gpus(2)) == Allreduce::kNccl);
  for (const auto& devices : {gpus(1), {fake_gpu(0), fake_gpu(0)}, {fake_gpu(0), cpu}, {cpu, cpu}}) {
    CHECK(choose_allreduce(Allreduce::kAuto, devices) == Allreduce::kTwoShot);
  }
  CHECK(choose_allreduce(Allreduce::kRing, gpus(2)) == Allreduce::kRing);
  CHECK_THROWS_AS(choose_allreduce(Allreduce::kNccl, std::vector{cpu, cpu}), UsageError);
  reset_fake_nccl();
  const auto communicator = make_communicator({.devices = gpus(2)});
  const auto host = inputs(2, 10, torch::kFloat32);
  const auto expected = exact_sum(host);
  const auto tensors = to_gpus(host);
  allreduce_all(*communicator, tensors);
  synchronize(2);
  CHECK(all_are(expected, host));  // a fake GPU has no kernels: only NCCL can have computed this
}

TEST_CASE("NCCL: waiting for ranks that do not join ends after the timeout") {
  reset_fake_nccl();
  CHECK_THAT(refusal_and_hint<PeerError>([] {
               make_nccl_communicator(
                   {.devices = gpus(1), .world_size = 2, .id = make_nccl_id(), .timeout = milliseconds(50)});
             }),
             ContainsSubstring("waited 0.05 s on privateuseone:0 for ranks that did not join"));
  CHECK(fake_nccl().aborted == 1);
}

TEST_CASE("NCCL: a failed set-up reports NCCL's text") {
  reset_fake_nccl();
  fake_nccl().group_end = ncclInternalError;
  fake_nccl().last_error = "no interface";
  CHECK_THAT(
      refusal_and_hint<DeviceError>([] { nccl(2); }),
      ContainsSubstring("could not join privateuseone:0: internal error (no interface) | NCCL_DEBUG=INFO"));
}

TEST_CASE("NCCL: a failed call ends all ranks, and the error names device, operation and number") {
  reset_fake_nccl();
  const auto communicator = nccl(2);
  const auto tensors = to_gpus(inputs(2, 10, torch::kFloat32));
  const Post sum = [&](Endpoint& endpoint, size_t rank) { return endpoint.allreduce_sum(tensors[rank]); };
  run_on_all(*communicator, sum);
  CHECK(communicator->endpoint(0).error() == nullptr);
  fake_nccl().collective = ncclInternalError;
  auto work = communicator->endpoint(1).allreduce_sum(tensors[1]);
  const std::string expected = "allreduce on privateuseone:1 (collective 2) failed: internal error";
  CHECK_THAT(refusal_and_hint<PeerError>([&] { work.wait(); }), ContainsSubstring(expected));
  fake_nccl().collective = ncclSuccess;
  for (auto& later : post_on_all(*communicator, sum)) {
    CHECK_THAT(refusal_and_hint<PeerError>([&] { later.wait(); }), ContainsSubstring(expected));
  }
  CHECK(fake_nccl().aborted == 2);
}

TEST_CASE("NCCL: a failure after queueing is found and frees the streams") {
  reset_fake_nccl();
  const auto communicator = nccl(2);
  const auto tensors = to_gpus(inputs(2, 10, torch::kFloat32));
  fake_nccl().after_collectives = ncclRemoteError;
  auto work = communicator->endpoint(0).allreduce_sum(tensors[0]);  // rank 1 has died and never calls
  const std::string during_call = refusal_and_hint<PeerError>([&] { work.wait(); });
  const auto found = message_of(await_error(communicator->endpoint(1)));
  CHECK_THAT(found,
             ContainsSubstring("allreduce on privateuseone:0 (collective 1) failed: remote process exited"));
  CHECK((during_call == found || during_call.empty()));
  synchronize(2);  // returns, because the abort has ended the waiting kernel
  CHECK(fake_nccl().aborted == 2);
}

TEST_CASE("NCCL: a collective that a rank never calls ends after the timeout") {
  reset_fake_nccl();
  const auto communicator = nccl(2, milliseconds(100));
  const auto tensors = to_gpus(inputs(2, 10, torch::kFloat32));
  auto work = communicator->endpoint(0).broadcast(tensors[0], 0);
  work.wait();  // queued; the GPU waits, not the host
  CHECK_THAT(
      message_of(await_error(communicator->endpoint(0))),
      ContainsSubstring("broadcast from 0 on privateuseone:0 (collective 1) did not finish within 0.1 s"));
  synchronize(2);
}

TEST_CASE("NCCL: a call that stays at ncclInProgress ends after the timeout") {
  reset_fake_nccl();
  const auto communicator = nccl(2, milliseconds(100));
  fake_nccl().polls_in_progress = 1 << 30;
  const auto tensors = to_gpus(inputs(2, 10, torch::kFloat32));
  auto work = communicator->endpoint(0).allreduce_sum(tensors[0]);
  CHECK_THAT(refusal_and_hint<PeerError>([&] { work.wait(); }),
             ContainsSubstring("(collective 1) did not finish within 0.1 s"));
}

TEST_CASE("NCCL: unsupported dtypes and wrong arguments are errors of the caller") {
  reset_fake_nccl();
  const auto communicator = nccl(1);
  auto& endpoint = communicator->endpoint(0);
  const auto narrow = on_fake_gpu(torch::zeros({3}, torch::kFloat8_e5m2), 0);
  auto work = endpoint.allreduce_sum(narrow);
  CHECK_THAT(refusal_and_hint<UsageError>([&] { work.wait(); }),
             ContainsSubstring("allreduce cannot add 3 elements of Float8_e5m2"));
  const auto other = nccl(1);
  auto wrong_place = other->endpoint(0).allreduce_sum(torch::zeros({3}));
  CHECK_THAT(refusal_and_hint<UsageError>([&] { wrong_place.wait(); }),
             ContainsSubstring("rank 0 on privateuseone:0 called allreduce"));
}

TEST_CASE("a trace has the GPUs' spans in the threads' time") {
  reset_fake_nccl();
  Trace trace;
  double posted = 0;  // when the threads were done and the GPUs were not
  {
    const auto communicator = nccl(2, std::chrono::minutes(5), &trace);
    const auto tensors = to_gpus(inputs(2, 250'000, torch::kFloat32));
    std::promise<void> gate;
    launch(current_stream(fake_gpu(0)), [open = gate.get_future().share()] { open.wait(); });
    allreduce_all(*communicator, tensors);
    posted = trace.seconds();
    while (trace.seconds() < posted + .1) std::this_thread::yield();  // the GPU's clock is read with a delay
    gate.set_value();
    synchronize(2);
  }
  while (trace.events().size() < 4) trace.resolve();  // two spans of threads, two of GPUs
  for (int rank = 0; rank < 2; ++rank) {
    const Trace::Event* host = nullptr;
    const Trace::Event* device = nullptr;
    const auto events = trace.events();
    for (const auto& event : events) {
      if (event.rank != rank) continue;
      (event.track == Trace::Track::kCommunication ? host : device) = &event;
    }
    REQUIRE(host);
    REQUIRE(device);
    CHECK(device->track == Trace::Track::kDeviceCommunication);
    CHECK(host->name == "allreduce 1.000 MB");
    CHECK(device->name == host->name);
    CHECK(device->begin >= 0);
    CHECK(device->end >= device->begin);
    CHECK(device->end <= trace.seconds());
    CHECK(host->end <= posted);
    CHECK(device->end > posted);
  }
}

TEST_CASE(
    "the workers' streams follow the caller's work and precede its later work, and the host does not wait") {
  ReplicaWorkers workers({fake_gpu(0), fake_gpu(0)}, 1);
  std::vector<int> log;
  std::mutex mutex;
  const auto note = [&](int what) {
    return [&, what] {
      const std::lock_guard lock(mutex);
      log.push_back(what);
    };
  };
  const auto mine = current_stream(fake_gpu(0));
  std::promise<void> gate;
  launch(mine, [open = gate.get_future().share()] { open.wait(); });
  launch(mine, note(1));
  workers.run([&](int) { launch(current_stream(fake_gpu(0)), note(2)); });
  launch(mine, note(3));
  gate.set_value();
  mine.synchronize();
  CHECK(log == std::vector<int>{1, 2, 2, 3});
}
