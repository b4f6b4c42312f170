// Collectives of NCCL. Only this file and nccl_ranks.h include it. Streams and events are c10's, so they need
// no other CUDA header, and tests/parallel runs them against a fake NCCL on fake GPUs.
#include <lockstep/parallel/collectives/nccl_communicator.h>

#include <fmt/format.h>
#include <nccl.h>

#include <cstddef>
#include <set>
#include <utility>

#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/dtypes.h>
#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/parallel/collectives/nccl_ranks.h>
#include <lockstep/parallel/collectives/part_collectives.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

ncclDataType_t nccl_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return ncclFloat32;
    case torch::kFloat64:
      return ncclFloat64;
    case torch::kBFloat16:
      return ncclBfloat16;
    case torch::kFloat16:
      return ncclFloat16;
    case torch::kInt64:
      return ncclInt64;
    case torch::kInt32:
      return ncclInt32;
    case torch::kInt8:
      return ncclInt8;
    case torch::kUInt8:
    case torch::kBool:
      return ncclUint8;
    default:
      throw UsageError(fmt::format("NCCL has no type for tensors of {}", torch::toString(type)),
                       "convert them, or use " + named_allreduce(Allreduce::kTwoShot));
  }
}

// The parts that ranks own of a tensor, in its memory.
class PartsOf {
 public:
  // tensor: contiguous
  PartsOf(torch::Tensor tensor, PartBounds bounds) : tensor_(std::move(tensor)), bounds_(std::move(bounds)) {}

  int ranks() const { return static_cast<int>(bounds_.size()) - 1; }
  size_t numel(int rank) const { return static_cast<size_t>(bound(rank + 1) - bound(rank)); }
  size_t bytes(int rank) const { return numel(rank) * tensor_.element_size(); }
  void* begin(int rank) const {
    return static_cast<std::byte*>(tensor_.data_ptr()) + bound(rank) * tensor_.element_size();
  }
  bool are_even() const {
    for (int rank = 1; rank < ranks(); ++rank) {
      if (numel(rank) != numel(0)) return false;
    }
    return true;
  }

 private:
  int64_t bound(int rank) const { return bounds_[static_cast<size_t>(rank)]; }

  torch::Tensor tensor_;
  PartBounds bounds_;
};

// Queues call(owner) for each part as one operation. NCCL's ReduceScatter and AllGather take parts of one
// length alone: unequal ones are reduced to their owners, or sent by these, one beside the other, and nothing
// is copied.
template <class Call>
ncclResult_t for_each_part(const PartsOf& parts, const Call& call) {
  auto result = ncclGroupStart();
  const auto goes_on = [&] { return result == ncclSuccess || result == ncclInProgress; };
  for (int owner = 0; owner < parts.ranks() && goes_on(); ++owner) {
    if (parts.numel(owner) > 0) result = call(owner);
  }
  const auto end = ncclGroupEnd();
  return goes_on() ? end : result;
}

// For what is not called.
constexpr auto no_call = [](ncclComm_t, cudaStream_t) { return ncclSuccess; };

class NcclEndpoint : public Endpoint {
 public:
  NcclEndpoint(const NcclOptions& options, size_t local, NcclRanks& ranks)
      : rank_(options.first_rank + static_cast<int>(local)),
        world_size_(options.world_size),
        local_(local),
        ranks_(ranks),
        thread_(*this,
                {.local = static_cast<int>(local), .devices = options.devices, .trace = options.trace}) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  torch::Device device() const override { return ranks_.device(local_); }

  Work allreduce_sum(torch::Tensor tensor) override {
    const auto problem = sum_problem(*this, tensor);
    const bool is_copied = addend_type(tensor.scalar_type()) == torch::kShort;
    const auto addends = !problem && is_copied ? addends_of(tensor.detach()) : tensor.detach();
    const auto call = [addends](ncclComm_t comm, cudaStream_t stream) {
      const auto type = addend_type(addends.scalar_type());
      const auto operation = type == torch::kBool ? ncclMax : ncclSum;  // a sum of two bytes would be no bool
      return ncclAllReduce(addends.data_ptr(), addends.data_ptr(), addends.nbytes() / c10::elementSize(type),
                           nccl_type(type), operation, comm, stream);
    };
    return sum_into(tensor, addends, post("allreduce", addends, call, problem));
  }

  Work broadcast(torch::Tensor tensor, int root) override {
    const auto call = [tensor = tensor.detach(), root](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(), ncclUint8, root, comm,
                           stream);
    };
    return post(fmt::format("broadcast from {}", root), tensor, call, root_problem(*this, tensor, root));
  }

  Work all_gather(torch::Tensor tensor, torch::Tensor out) override {
    const auto call = [tensor = tensor.detach(), out](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(tensor.data_ptr(), out.data_ptr(), tensor.nbytes(), ncclUint8, comm, stream);
    };
    return post("all_gather", tensor, call, gather_problem(*this, tensor, out));
  }

  Work reduce_scatter(torch::Tensor tensor, PartBounds bounds) override {
    const auto problem = parts_problem(*this, "reduce_scatter", tensor, bounds);
    if (problem) return post("reduce_scatter", tensor, no_call, problem);
    const PartsOf parts(tensor.detach(), std::move(bounds));
    const auto call = [parts, own = rank_, type = nccl_type(tensor.scalar_type())](ncclComm_t comm,
                                                                                   cudaStream_t stream) {
      if (parts.are_even()) {
        return ncclReduceScatter(parts.begin(0), parts.begin(own), parts.numel(own), type, ncclSum, comm,
                                 stream);
      }
      return for_each_part(parts, [&](int owner) {
        return ncclReduce(parts.begin(owner), parts.begin(owner), parts.numel(owner), type, ncclSum, owner,
                          comm, stream);
      });
    };
    return post("reduce_scatter", tensor, call);
  }

  Work gather_parts(torch::Tensor tensor, PartBounds bounds) override {
    const auto problem = parts_problem(*this, "gather_parts", tensor, bounds);
    if (problem) return post("gather_parts", tensor, no_call, problem);
    const PartsOf parts(tensor.detach(), std::move(bounds));
    const auto call = [parts, own = rank_](ncclComm_t comm, cudaStream_t stream) {
      if (parts.are_even()) {
        return ncclAllGather(parts.begin(own), parts.begin(0), parts.bytes(own), ncclUint8, comm, stream);
      }
      return for_each_part(parts, [&](int owner) {
        return ncclBroadcast(parts.begin(owner), parts.begin(owner), parts.bytes(owner), ncclUint8, owner,
                             comm, stream);
      });
    };
    return post("gather_parts", tensor, call);
  }

  void abort(std::exception_ptr error) override { ranks_.watch().abort(std::move(error)); }
  std::exception_ptr error() const override { return ranks_.watch().error(); }
  int64_t posted() const override { return thread_.posted(); }

 private:
  template <class Call>
  Work post(const std::string& what, const torch::Tensor& tensor, const Call& call,
            std::exception_ptr problem = nullptr) {
    return thread_.post(
        what, tensor,
        [this, what, call](const std::optional<c10::Stream>& stream) {
          const auto native = static_cast<cudaStream_t>(stream->native_handle());
          ranks_.run(local_, what, *stream, [&](ncclComm_t comm) { return call(comm, native); });
        },
        problem);
  }

  const int rank_;
  const int world_size_;
  const size_t local_;
  NcclRanks& ranks_;
  CollectiveThread thread_;  // last: it uses all of the above
};

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(const NcclOptions& options) : options_(options), ranks_(options_) {
    for (size_t i = 0; i < options_.devices.size(); ++i) {
      endpoints_.push_back(std::make_unique<NcclEndpoint>(options_, i, ranks_));
    }
  }

  int world_size() const override { return options_.world_size; }
  int local_size() const override { return static_cast<int>(options_.devices.size()); }
  int first_rank() const override { return options_.first_rank; }
  Endpoint& endpoint(int local) override { return *endpoints_.at(static_cast<size_t>(local)); }

 private:
  const NcclOptions options_;
  NcclRanks ranks_;
  std::vector<std::unique_ptr<NcclEndpoint>> endpoints_;  // last: their threads use the ranks
};

}  // namespace

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "of unknown version";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::exception_ptr nccl_problem(std::span<const torch::Device> devices) {
  std::set<std::string> seen;
  for (const auto& device : devices) {
    if (device.is_cpu()) {
      return std::make_exception_ptr(
          UsageError(fmt::format("NCCL works on GPUs only, but the devices include {}", device.str()),
                     "use " + named_allreduce(Allreduce::kTwoShot) + ", which works on any devices"));
    }
    if (!seen.insert(device.str()).second) {
      return std::make_exception_ptr(
          UsageError(fmt::format("NCCL allows one replica per GPU, but the devices list {} more than once",
                                 device.str()),
                     "use " + named_allreduce(Allreduce::kTwoShot) + ", or list each GPU once"));
    }
  }
  return nullptr;
}

std::string make_nccl_id() {
  ncclUniqueId id{};
  const auto result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) {
    throw DeviceError(fmt::format("NCCL could not start: {}", nccl_error_text(result, nullptr)),
                      nccl_set_up_hint());
  }
  return {id.internal, sizeof(id.internal)};
}

std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions options) {
  if (const auto problem = nccl_problem(options.devices)) std::rethrow_exception(problem);
  return std::make_unique<NcclCommunicator>(options);
}

}  // namespace lockstep
