#include <lockstep/app/train/plan/train_plan.h>

#include <algorithm>

#include <lockstep/models/costs.h>
#include <lockstep/parallel/collectives/wire_bytes.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/training/precision.h>

namespace lockstep {

int64_t TrainPlan::element_bytes() const {
  return trainer.replica.precision == Precision::kFp64 ? sizeof(double) : sizeof(float);
}

int64_t TrainPlan::gradient_bytes() const { return element_bytes() * (parameter_count - frozen_count); }

std::vector<int64_t> TrainPlan::step_sizes() const {
  return shard_sizes(std::min(batch_size, data.set.train.rows), world_size(), trainer.split);
}

std::string TrainPlan::replica_device(int rank) const {
  return world.single_process() ? trainer.devices.at(static_cast<size_t>(rank)).str()
                                : world.replica_device(rank);
}

std::string TrainPlan::device_lists() const {
  return world.single_process() ? to_string(trainer.devices) : world.device_lists();
}

std::optional<int64_t> TrainPlan::wire_bytes() const {
  if (world.single_process()) return 0;
  if (trainer.allreduce == Allreduce::kNccl) return std::nullopt;
  const int64_t bytes = gradient_bytes();
  if (!trainer.replica.invariant) {
    return wire_bytes_of_sum(bytes, world.place.processes, trainer.compress);
  }
  return wire_bytes_of_gather(bytes, world.place.processes, world.layout().most_replicas());
}

bool TrainPlan::stays_in_fp32(torch::DeviceType device) const {
  return !program && lockstep::stays_in_fp32(spec(), device);
}

ModelSpec TrainPlan::spec() const {
  auto spec = model_spec(model, data.set);
  spec.dtype = dtype_of(trainer.replica.precision);
  spec.kernels = kernels;
  return spec;
}

}  // namespace lockstep
