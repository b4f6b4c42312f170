#include <lockstep/parallel/collectives/gloo/gloo_channel.h>

#include <ATen/core/ivalue.h>
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/gloo/c10d_error.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using GlooGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using GlooWork = c10::intrusive_ptr<c10d::Work>;

// The collectives that are under way. Gloo's threads report their ends here, perhaps after the channel is
// gone: they own it, too.
class GlooOutstanding {
 public:
  // Notes one more collective; null after an error, which the future then throws.
  std::optional<uint64_t> add(std::promise<void>& promise, std::future<void>& future) {
    const std::lock_guard lock(mutex_);
    future = promise.get_future();
    if (error_) {
      promise.set_exception(error_);
      return std::nullopt;
    }
    promises_.emplace(next_, std::move(promise));
    return next_++;
  }

  void finish(uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = promises_.find(number);
    if (found == promises_.end()) return;  // aborted
    found->second.set_value();
    promises_.erase(found);
  }

  void abort(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    abandoned_ = !promises_.empty();
    for (auto& [number, promise] : promises_) promise.set_exception(error_);
    promises_.clear();
  }

  // Whether collectives were under way when the channel ended: a thread of Gloo may still wait for a peer.
  bool abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::promise<void>> promises_;
  std::exception_ptr error_;
  uint64_t next_ = 0;
  bool abandoned_ = false;
};

class GlooChannel : public Channel {
 public:
  GlooChannel(GlooGroup group, int process) : group_(std::move(group)), process_(process) {}

  // The destructor of a group waits for its threads. If they may wait for a process that is gone, the group
  // stays behind, on purpose, with the tensors that they use.
  ~GlooChannel() override {
    outstanding_->abort(std::make_exception_ptr(UsageError("the channel was destroyed")));
    if (outstanding_->abandoned()) group_.release();
  }

  std::future<void> allreduce_sum(torch::Tensor tensor) override {
    return post("allreduce", tensor, [&] {
      std::vector<at::Tensor> tensors{tensor};
      return group_->allreduce(tensors);
    });
  }

  std::future<void> broadcast(torch::Tensor tensor, int process) override {
    return post("broadcast", tensor, [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = process;
      return group_->broadcast(tensors, options);
    });
  }

  std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) override {
    return post("all_gather", tensor, [&] {
      std::vector<std::vector<at::Tensor>> outs{out.unbind(0)};
      std::vector<at::Tensor> tensors{tensor};
      return group_->allgather(outs, tensors);
    });
  }

  void abort(std::exception_ptr error) noexcept override { outstanding_->abort(std::move(error)); }

 private:
  std::future<void> post(const char* what, const torch::Tensor& tensor,
                         const std::function<GlooWork()>& start) {
    std::promise<void> promise;
    std::future<void> future;
    const auto number = outstanding_->add(promise, future);
    if (!number) return future;
    if (tensor.numel() == 0) {
      outstanding_->finish(*number);
      return future;
    }
    const auto name = fmt::format("{} of {} (collective {})", what, describe_elements(tensor), *number);
    try {
      watch(start(), *number, name);
    } catch (const std::exception& error) {
      outstanding_->abort(std::make_exception_ptr(lost(name, c10d_words(error))));
    }
    return future;
  }

  void watch(const GlooWork& work, uint64_t number, const std::string& name) {
    work->getFuture()->addCallback([outstanding = outstanding_, work, number, name,
                                    process = process_](c10::ivalue::Future& ended) {
      if (!ended.hasError()) return outstanding->finish(number);
      outstanding->abort(std::make_exception_ptr(lost_by(process, name, c10d_words(ended.exception_ptr()))));
    });
  }

  static PeerError lost_by(int process, const std::string& name, const std::string& words) {
    return PeerError(fmt::format("process {} lost another process in its {}: {}", process, name, words),
                     "look for the first error of the other processes");
  }
  PeerError lost(const std::string& name, const std::string& words) const {
    return lost_by(process_, name, words);
  }

  GlooGroup group_;
  const int process_;
  const std::shared_ptr<GlooOutstanding> outstanding_ = std::make_shared<GlooOutstanding>();
};

}  // namespace

std::unique_ptr<Channel> make_gloo_channel(const GlooOptions& options) {
  try {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->threads = 1;  // a channel's collectives run one after the other anyway
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    return std::make_unique<GlooChannel>(
        c10::make_intrusive<c10d::ProcessGroupGloo>(options.store, options.process, options.processes, gloo),
        options.process);
  } catch (const std::exception& error) {
    throw PeerError(fmt::format("process {} cannot connect to the other {} from {}: {}", options.process,
                                options.processes - 1, options.address, c10d_words(error)),
                    "look for the first error of the other processes");
  }
}

}  // namespace lockstep
