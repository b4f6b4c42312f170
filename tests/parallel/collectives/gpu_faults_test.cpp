// A failed GPU is an error of the next call that uses it.
#include <lockstep/tests/catch.h>
#include <future>

#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/timing/phase_span.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::unique_ptr<Communicator> on_one_gpu(Trace* trace = nullptr) {
  return make_nccl_communicator(
      {.devices = {fake_gpu(0)}, .world_size = 1, .id = make_nccl_id(), .trace = trace});
}

}  // namespace

TEST_CASE("a failed GPU is an error of its collectives and does not end the program") {
  reset_fake_nccl();
  const auto code_of = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const c10::AcceleratorError& fault) {
      return fault.get_error_code();
    }
  };
  const bool found_by_watch = GENERATE(true, false);
  auto communicator = on_one_gpu();
  const auto host = torch::ones({10});
  std::promise<void> gate;
  launch(current_stream(fake_gpu(0)), [open = gate.get_future().share()] { open.wait(); });
  communicator->endpoint(0).allreduce_sum(on_fake_gpu(host, 0)).wait();
  break_gpus(kIllegalAddress);
  if (found_by_watch) CHECK(code_of(await_error(communicator->endpoint(0))) == kIllegalAddress);
  gate.set_value();
  communicator.reset();  // polls the collectives in flight
  CHECK(fake_nccl().aborted == 1);
  break_gpus(0);
}

TEST_CASE("a GPU that fails while a communication thread starts is the error of its first collective") {
  reset_fake_nccl();
  Trace trace;  // its clock uses the GPU
  break_gpus(kIllegalAddress);
  const auto communicator = on_one_gpu(&trace);
  // The thread is through with its start when it has done something; this fails before it could be posted.
  CHECK_THROWS_AS(communicator->endpoint(0).allreduce_sum(on_fake_gpu(torch::ones({10}), 0)),
                  c10::AcceleratorError);
  break_gpus(0);
}

TEST_CASE("a span that ends on a failed GPU is dropped, and the next use of the GPU reports the error") {
  Trace trace;
  std::optional<DeviceClock> clock;
  clock.emplace(current_stream(fake_gpu(0)), trace);
  {
    const PhaseSpan span(&trace, "forward", 0, Trace::Track::kCompute, clock);
    break_gpus(kIllegalAddress);
  }
  CHECK(trace.dropped() == 1);
  CHECK(trace.events().size() == 1);  // the thread's span
  CHECK_THROWS_AS(clock->mark(), c10::AcceleratorError);
  break_gpus(0);
}
