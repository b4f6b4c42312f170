#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include <lockstep/parallel/barrier.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/local_round.h>
#include <lockstep/parallel/replica_thread.h>
#include <lockstep/parallel/task_thread.h>
#include <lockstep/parallel/trace.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Algorithm = std::function<void(const LocalRound&)>;

std::exception_ptr usage(const std::string& what, const std::string& hint = {}) {
  return std::make_exception_ptr(UsageError(what, hint));
}

std::string describe(const torch::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.numel() << " elements of " << tensor.scalar_type();
  return out.str();
}

// What the ranks of one process share.
struct Meeting {
  explicit Meeting(const std::vector<torch::Device>& devices)
      : barrier(static_cast<int>(devices.size())),
        streams(std::any_of(devices.begin(), devices.end(), [](auto device) { return !device.is_cpu(); })),
        tensors(devices.size()),
        what(devices.size()),
        queued(devices.size()) {}

  Barrier barrier;
  const bool streams;  // some rank's device has them
  // One a rank, written by its own communication thread before a sync.
  std::vector<torch::Tensor> tensors;               // of the collective under way, each (n)
  std::vector<std::string> what;                    // likewise
  std::vector<std::shared_ptr<c10::Event>> queued;  // end of what the rank has queued so far; null on a CPU
};

class LocalEndpoint : public Endpoint {
 public:
  LocalEndpoint(const LocalCommunicatorOptions& options, int rank, Meeting& meeting)
      : options_(options), rank_(rank), meeting_(meeting), thread_([this] { set_up(); }) {}

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(options_.devices.size()); }
  torch::Device device() const override { return options_.devices[static_cast<size_t>(rank_)]; }

  Work allreduce_sum(torch::Tensor tensor) override {
    // Alone there is nothing to add; what is wrong is reported all the same.
    if (world_size() == 1 && !meeting_.barrier.error() && !unfit("allreduce", tensor)) return Work();
    switch (options_.algorithm) {
      case Allreduce::kRoot:
        return post("allreduce", std::move(tensor), allreduce_root);
      case Allreduce::kTwoShot:
        return post("allreduce", std::move(tensor), allreduce_two_shot);
      case Allreduce::kRing:
        return post("allreduce", std::move(tensor), allreduce_ring);
    }
    throw UsageError("unknown allreduce algorithm");
  }

  Work broadcast(torch::Tensor tensor, int root) override {
    const auto what = fmt::format("broadcast from {}", root);
    std::exception_ptr problem;
    if (root < 0 || root >= world_size())
      problem = usage(fmt::format("{} in a world of {}", what, world_size()));
    const auto copy = [root](const LocalRound& round) {
      if (round.rank != root) round.own().copy_(round.of(root));
    };
    return post(what, std::move(tensor), copy, problem);
  }

  Work all_gather(torch::Tensor tensor, torch::Tensor out) override {
    const std::string what = "all_gather";
    auto problem = unfit(what, out);
    if (out.numel() != world_size() * tensor.numel() || out.scalar_type() != tensor.scalar_type()) {
      problem = usage(
          fmt::format("{} of {} from {} ranks into {}", what, describe(tensor), world_size(), describe(out)),
          "out has room for one tensor a rank, of the same dtype");
    }
    const auto copy = [out](const LocalRound& round) {
      const auto rows = out.view({round.world(), round.own().numel()});
      for (int other = 0; other < round.world(); ++other) rows[other].copy_(round.of(other));
    };
    return post(what, std::move(tensor), copy, problem);
  }

  void abort(std::exception_ptr error) override { meeting_.barrier.abort(std::move(error)); }

 private:
  void set_up() {
    stream_ =
        set_up_replica_thread({.rank = rank_, .devices = options_.devices, .threads = options_.threads});
    // A second set of intra-op threads would fight the replica's own for its cores.
    at::set_num_threads(1);
    at::GradMode::set_enabled(false);
  }

  // Why a collective cannot take this tensor; null if it can.
  std::exception_ptr unfit(const std::string& what, const torch::Tensor& tensor) const {
    std::ostringstream found;
    if (tensor.device() != device()) {
      found << "on " << tensor.device();
    } else if (!tensor.is_contiguous()) {
      found << "of sizes " << tensor.sizes() << " and strides " << tensor.strides();
    } else {
      return nullptr;
    }
    return usage(
        fmt::format("rank {} on {} called {} with a tensor {}", rank_, device().str(), what, found.str()),
        "collectives take contiguous tensors on the replica's own device");
  }

  // problem: what is wrong with the arguments, if anything. It ends this collective on all ranks.
  Work post(std::string what, torch::Tensor tensor, Algorithm algorithm,
            std::exception_ptr problem = nullptr) {
    if (!problem) problem = unfit(what, tensor);
    std::shared_ptr<c10::Event> ready;
    if (!device().is_cpu()) {
      ready = std::make_shared<c10::Event>(device().type());
      ready->record(current_stream(device()));
    }
    auto done = std::make_shared<std::promise<Work::Done>>();
    Work work(done->get_future());
    thread_.post([this, what = std::move(what), tensor = tensor.detach(), ready, done, problem,
                  algorithm = std::move(algorithm)] {
      try {
        // Before anything is shared: after a failure others may still be in the collective that failed.
        if (const auto error = meeting_.barrier.error()) std::rethrow_exception(error);
        if (problem) std::rethrow_exception(problem);
        if (ready) ready->block(*stream_);
        done->set_value(run(what, tensor.view({-1}), algorithm));
      } catch (...) {
        abort(std::current_exception());  // or the others would wait for ever
        done->set_exception(meeting_.barrier.error());
      }
    });
    return work;
  }

  // In the communication thread.
  Work::Done run(const std::string& what, const torch::Tensor& tensor, const Algorithm& algorithm) {
    const Trace::Span span(
        options_.trace,
        options_.trace ? fmt::format("{} {:.3f} MB", what, static_cast<double>(tensor.nbytes()) / 1e6) : "",
        rank_, Trace::Lane::kCommunication);
    meeting_.tensors[static_cast<size_t>(rank_)] = tensor;
    meeting_.what[static_cast<size_t>(rank_)] = what;
    sync();
    check_alike();
    algorithm({.rank = rank_, .tensors = meeting_.tensors, .sync = [this] { sync(); }});
    sync();
    meeting_.tensors[static_cast<size_t>(rank_)].reset();
    if (!stream_) return nullptr;
    auto event = std::make_shared<c10::Event>(device().type());
    event->record(*stream_);
    return event;
  }

  void sync() {
    if (stream_) {
      auto& event = meeting_.queued[static_cast<size_t>(rank_)];
      event = std::make_shared<c10::Event>(device().type());
      event->record(*stream_);
    }
    meeting_.barrier.arrive_and_wait();
    if (!meeting_.streams) return;
    for (const auto& event : meeting_.queued) {
      if (!event) continue;
      if (stream_)
        event->block(*stream_);
      else
        event->synchronize();  // a CPU replica beside GPUs has no stream that could wait for it
    }
    meeting_.barrier.arrive_and_wait();  // nobody records anew while others still look
  }

  void check_alike() const {
    const auto& first = meeting_.tensors.front();
    for (size_t other = 1; other < meeting_.tensors.size(); ++other) {
      const auto& tensor = meeting_.tensors[other];
      const bool alike = tensor.numel() == first.numel() && tensor.scalar_type() == first.scalar_type() &&
                         meeting_.what[other] == meeting_.what.front();
      if (alike) continue;
      throw UsageError(
          fmt::format("replicas disagree: rank 0 called {} of {}, rank {} called {} of {}",
                      meeting_.what.front(), describe(first), other, meeting_.what[other], describe(tensor)),
          "all replicas call the same collectives in the same order");
    }
  }

  const LocalCommunicatorOptions& options_;
  const int rank_;
  Meeting& meeting_;
  std::optional<c10::Stream> stream_;
  TaskThread thread_;  // last: it uses all of the above
};

class LocalCommunicator : public Communicator {
 public:
  explicit LocalCommunicator(LocalCommunicatorOptions options)
      : options_(std::move(options)), meeting_(options_.devices) {
    for (int rank = 0; rank < world_size(); ++rank) {
      endpoints_.push_back(std::make_unique<LocalEndpoint>(options_, rank, meeting_));
    }
  }

  ~LocalCommunicator() override {
    // Or a rank that waits for one that never came would keep its thread for ever.
    meeting_.barrier.abort(usage("the communicator is gone"));
  }

  int world_size() const override { return static_cast<int>(options_.devices.size()); }
  int local_size() const override { return world_size(); }
  int first_rank() const override { return 0; }
  Endpoint& endpoint(int local) override { return *endpoints_.at(static_cast<size_t>(local)); }

 private:
  const LocalCommunicatorOptions options_;
  Meeting meeting_;
  std::vector<std::unique_ptr<LocalEndpoint>> endpoints_;  // last: their threads use the meeting
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(LocalCommunicatorOptions options) {
  if (options.devices.empty()) throw UsageError("a communicator needs at least one device");
  return std::make_unique<LocalCommunicator>(std::move(options));
}

}  // namespace lockstep
