// The only file that includes NCCL. Streams and events are c10's, so it needs no other CUDA header, and
// tests/parallel runs it against a fake NCCL on fake GPUs.
//
// Communicators are non-blocking: every call returns at once, perhaps with ncclInProgress, and is then polled
// (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html). A blocking call would
// keep its thread inside NCCL when a peer has died, where neither a timeout nor an abort could end it.
#include <lockstep/parallel/collectives/nccl_communicator.h>

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/collective_watch.h>
#include <lockstep/parallel/collectives/dtypes.h>
#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/parallel/collectives/part_collectives.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Time between two polls of a call that is in progress.
constexpr std::chrono::microseconds kPollInterval{20};

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

// NCCL's text for this result, with its detail on the last error.
std::string error_text(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  const char* detail = ncclGetLastError(comm);
  if (detail && *detail) text += fmt::format(" ({})", detail);
  return text;
}

ErrorText set_up_hint() {
  return "NCCL_DEBUG=INFO shows what NCCL tried; use " + named_allreduce(Allreduce::kTwoShot) +
         " to run without NCCL";
}
constexpr const char* kPeerHint = "NCCL_DEBUG=INFO shows what NCCL saw; nvidia-smi names a lost GPU";

// One rank's NCCL communicator. Thread-safe after start().
class Comm {
 public:
  explicit Comm(torch::Device device) : device_(device) {}
  ~Comm() { abort(); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  torch::Device device() const { return device_; }

  // Begins to join the ranks; call it within an NCCL group. state() then tells the result.
  ncclResult_t start(int world, const ncclUniqueId& id, int rank) {
    const c10::DeviceGuard guard(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(&comm_, world, id, rank, &config);
  }

  // The result of the call in flight; ncclInProgress until it has finished.
  ncclResult_t state() const {
    const std::lock_guard lock(mutex_);
    if (!comm_) return ncclSuccess;  // aborted: nothing is in flight
    ncclResult_t state = ncclSuccess;
    const auto result = ncclCommGetAsyncError(comm_, &state);
    return result == ncclSuccess ? state : result;
  }

  // Calls NCCL with the communicator. Returns ncclRemoteError if it has been aborted: the caller then reports
  // the error of the abort.
  template <class Call>
  ncclResult_t call(const Call& call) {
    const std::lock_guard lock(mutex_);
    return comm_ ? call(comm_) : ncclRemoteError;
  }

  // Ends the communicator's kernels.
  void abort() {
    const std::lock_guard lock(mutex_);
    if (!comm_) return;
    ncclCommAbort(comm_);
    comm_ = nullptr;
  }

  // Call it when nothing is in flight.
  void close() {
    const std::lock_guard lock(mutex_);
    if (!comm_) return;
    ncclCommDestroy(comm_);
    comm_ = nullptr;
  }

  std::string describe(ncclResult_t result) const {
    const std::lock_guard lock(mutex_);
    return error_text(result, comm_);
  }

  [[noreturn]] void fail_set_up(ncclResult_t result) const {
    throw DeviceError(fmt::format("NCCL could not join {}: {}", device_.str(), describe(result)),
                      set_up_hint());
  }

 private:
  const torch::Device device_;
  mutable std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
};

// The NCCL communicators of the local ranks, and the watch over the collectives in flight.
class Ranks {
 public:
  explicit Ranks(const NcclOptions& options)
      : options_(options), watch_(options.timeout, kPeerHint, [this] {
          for (auto& comm : comms_) comm->abort();
        }) {
    for (const auto& device : options.devices) comms_.push_back(std::make_unique<Comm>(device));
    try {
      join();
      await_all();
    } catch (...) {
      watch_.abort(std::current_exception());  // tells the peers that have joined
      throw;
    }
    sequences_.resize(comms_.size());
  }

  ~Ranks() {
    // Without an error the communicators are closed, not aborted: a peer's kernel may still read this rank's
    // memory.
    if (!watch_.is_idle()) return;
    for (auto& comm : comms_) comm->close();
  }

  CollectiveWatch& watch() { return watch_; }
  torch::Device device(size_t local) const { return comms_[local]->device(); }

  // Puts a collective on a rank's stream and returns when NCCL has queued it. Called from the rank's
  // communication thread.
  template <class Call>
  void run(size_t local, const std::string& what, const c10::Stream& stream, const Call& call) {
    auto& comm = *comms_[local];
    CollectiveWatch::Operation operation{
        .what = fmt::format("{} on {} (collective {})", what, comm.device().str(), ++sequences_[local])};
    operation.failure = [&comm] {
      const auto state = comm.state();
      return state == ncclSuccess || state == ncclInProgress ? std::string() : comm.describe(state);
    };
    auto result = comm.call(call);
    while (result == ncclInProgress) {
      if (watch_.late(operation)) throw watch_.overdue(operation);
      std::this_thread::sleep_for(kPollInterval);
      result = comm.state();
    }
    if (const auto ended = watch_.error()) std::rethrow_exception(ended);
    if (result != ncclSuccess) throw watch_.failed(operation, comm.describe(result));
    operation.end = std::make_shared<c10::Event>(stream.device_type());
    operation.end->record(stream);
    watch_.add(std::move(operation));
  }

 private:
  // Begins to join all ranks of this process.
  void join() {
    ncclUniqueId id{};
    if (options_.id.size() != sizeof(id.internal)) {
      throw UsageError(
          fmt::format("an NCCL id has {} bytes, this one has {}", sizeof(id.internal), options_.id.size()),
          "pass the result of make_nccl_id()");
    }
    std::memcpy(id.internal, options_.id.data(), sizeof(id.internal));
    ncclGroupStart();
    std::vector<ncclResult_t> results;
    for (size_t i = 0; i < comms_.size(); ++i) {
      results.push_back(comms_[i]->start(options_.world_size, id, options_.first_rank + static_cast<int>(i)));
    }
    const auto group = ncclGroupEnd();
    for (size_t i = 0; i < comms_.size(); ++i) {
      for (const auto result : {results[i], group}) {
        if (result != ncclSuccess && result != ncclInProgress) comms_[i]->fail_set_up(result);
      }
    }
  }

  void await_all() {
    const CollectiveWatch::Operation joining{.what = "joining"};
    for (auto& comm : comms_) {
      auto state = comm->state();
      while (state == ncclInProgress) {
        if (watch_.late(joining)) {
          throw PeerError(fmt::format("NCCL waited {} s on {} for ranks that did not join",
                                      watch_.timeout_seconds(), comm->device().str()),
                          kPeerHint);
        }
        std::this_thread::sleep_for(kPollInterval);
        state = comm->state();
      }
      if (state != ncclSuccess) comm->fail_set_up(state);
    }
  }

  const NcclOptions& options_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::vector<int64_t> sequences_;  // number of the last collective, one per local rank
  CollectiveWatch watch_;           // last: its thread polls the communicators
};

// The parts that ranks own of a tensor as NCCL takes them: of equal length.
class EqualParts {
 public:
  // tensor: contiguous
  EqualParts(torch::Tensor tensor, PartBounds bounds)
      : tensor_(tensor.view({-1})), bounds_(std::move(bounds)) {
    for (size_t rank = 0; rank < ranks(); ++rank) width_ = std::max(width_, of(rank).numel());
  }

  // (ranks, width): the tensor itself if its parts are equal, else a copy with anything behind shorter ones.
  torch::Tensor filled() const {
    if (is_even()) return tensor_.view({static_cast<int64_t>(ranks()), width_});
    const auto copy = torch::empty({static_cast<int64_t>(ranks()), width_}, tensor_.options());
    for (size_t rank = 0; rank < ranks(); ++rank) {
      copy[static_cast<int64_t>(rank)].narrow(0, 0, of(rank).numel()).copy_(of(rank));
    }
    return copy;
  }

  // Copies a rank's part back from filled().
  void take(const torch::Tensor& filled, int rank) const {
    const auto part = of(static_cast<size_t>(rank));
    if (!is_even()) part.copy_(filled[rank].narrow(0, 0, part.numel()));
  }

 private:
  size_t ranks() const { return bounds_.size() - 1; }
  bool is_even() const { return width_ * static_cast<int64_t>(ranks()) == tensor_.numel(); }
  torch::Tensor of(size_t rank) const { return tensor_.slice(0, bounds_[rank], bounds_[rank + 1]); }

  torch::Tensor tensor_;  // (n)
  PartBounds bounds_;
  int64_t width_ = 0;
};

// For what is not called.
constexpr auto no_call = [](ncclComm_t, cudaStream_t) { return ncclSuccess; };

class NcclEndpoint : public Endpoint {
 public:
  NcclEndpoint(const NcclOptions& options, size_t local, Ranks& ranks)
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
    const EqualParts parts(tensor.detach(), std::move(bounds));
    const auto sent = parts.filled(), own = sent[rank_];
    const auto call = [sent, own](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(sent.data_ptr(), own.data_ptr(), static_cast<size_t>(own.numel()),
                               nccl_type(own.scalar_type()), ncclSum, comm, stream);
    };
    return post("reduce_scatter", sent, call).then([parts, sent, rank = rank_] { parts.take(sent, rank); });
  }

  Work gather_parts(torch::Tensor tensor, PartBounds bounds) override {
    const auto problem = parts_problem(*this, "gather_parts", tensor, bounds);
    if (problem) return post("gather_parts", tensor, no_call, problem);
    const EqualParts parts(tensor.detach(), std::move(bounds));
    const auto all = parts.filled(), own = all[rank_];
    const auto call = [all, own](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(own.data_ptr(), all.data_ptr(), own.nbytes(), ncclUint8, comm, stream);
    };
    return post("gather_parts", all, call).then([parts, all, world = world_size_] {
      for (int rank = 0; rank < world; ++rank) parts.take(all, rank);
    });
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
  Ranks& ranks_;
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
  Ranks ranks_;
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
    throw DeviceError(fmt::format("NCCL could not start: {}", error_text(result, nullptr)), set_up_hint());
  }
  return {id.internal, sizeof(id.internal)};
}

std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions options) {
  if (const auto problem = nccl_problem(options.devices)) std::rethrow_exception(problem);
  return std::make_unique<NcclCommunicator>(options);
}

}  // namespace lockstep
