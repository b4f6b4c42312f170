// The NCCL communicators of this process's ranks: how they join, how a call of one is queued, watched and
// ended. For nccl_communicator_cuda.cpp.
//
// Communicators are non-blocking: every call returns at once, perhaps with ncclInProgress, and is then polled
// (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html). A blocking call would
// keep its thread inside NCCL when a peer has died, where neither a timeout nor an abort could end it.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/collective_watch.h>
#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/support/error.h>

namespace lockstep {

// Time between two polls of a call that is in progress.
inline constexpr std::chrono::microseconds kNcclPollInterval{20};

// NCCL's text for this result, with its detail on the last error.
inline std::string nccl_error_text(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  const char* detail = ncclGetLastError(comm);
  if (detail && *detail) text += fmt::format(" ({})", detail);
  return text;
}

inline ErrorText nccl_set_up_hint() {
  return "NCCL_DEBUG=INFO shows what NCCL tried; use " + named_allreduce(Allreduce::kTwoShot) +
         " to run without NCCL";
}
inline constexpr const char* kNcclPeerHint =
    "NCCL_DEBUG=INFO shows what NCCL saw; nvidia-smi names a lost GPU";

// One rank's NCCL communicator. Thread-safe after start().
class NcclRank {
 public:
  explicit NcclRank(torch::Device device) : device_(device) {}
  ~NcclRank() { abort(); }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

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
    return nccl_error_text(result, comm_);
  }

  [[noreturn]] void fail_set_up(ncclResult_t result) const {
    throw DeviceError(fmt::format("NCCL could not join {}: {}", device_.str(), describe(result)),
                      nccl_set_up_hint());
  }

 private:
  const torch::Device device_;
  mutable std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
};

// The NCCL communicators of the local ranks, and the watch over the collectives in flight.
class NcclRanks {
 public:
  explicit NcclRanks(const NcclOptions& options)
      : options_(options), watch_(options.timeout, kNcclPeerHint, [this] {
          for (auto& comm : comms_) comm->abort();
        }) {
    for (const auto& device : options.devices) comms_.push_back(std::make_unique<NcclRank>(device));
    try {
      join();
      await_all();
    } catch (...) {
      watch_.abort(std::current_exception());  // tells the peers that have joined
      throw;
    }
    sequences_.resize(comms_.size());
  }

  ~NcclRanks() {
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
      std::this_thread::sleep_for(kNcclPollInterval);
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
                          kNcclPeerHint);
        }
        std::this_thread::sleep_for(kNcclPollInterval);
        state = comm->state();
      }
      if (state != ncclSuccess) comm->fail_set_up(state);
    }
  }

  const NcclOptions& options_;
  std::vector<std::unique_ptr<NcclRank>> comms_;
  std::vector<int64_t> sequences_;  // number of the last collective, one per local rank
  CollectiveWatch watch_;           // last: its thread polls the communicators
};

}  // namespace lockstep
