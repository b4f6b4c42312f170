#include <lockstep/parallel/communicator.h>

#include <lockstep/parallel/collectives/local_communicator.h>
#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/support/stream.h>

namespace lockstep {

void Work::wait() {
  if (!done_.valid()) return;
  if (const auto event = done_.get()) event->block(current_stream(event->device()));
}

Allreduce choose_allreduce(Allreduce wanted, std::span<const torch::Device> devices) {
  if (wanted != Allreduce::kAuto && wanted != Allreduce::kNccl) return wanted;
  const auto problem = nccl_problem(devices);
  if (wanted == Allreduce::kNccl && problem) std::rethrow_exception(problem);
  return wanted == Allreduce::kNccl || (devices.size() > 1 && !problem) ? Allreduce::kNccl
                                                                        : Allreduce::kTwoShot;
}

std::unique_ptr<Communicator> make_communicator(CommunicatorOptions options) {
  options.algorithm = choose_allreduce(options.algorithm, options.devices);
  if (options.algorithm != Allreduce::kNccl) return make_local_communicator(std::move(options));
  const auto world = static_cast<int>(options.devices.size());
  return make_nccl_communicator(
      {.devices = options.devices, .world_size = world, .id = make_nccl_id(), .trace = options.trace});
}

}  // namespace lockstep
