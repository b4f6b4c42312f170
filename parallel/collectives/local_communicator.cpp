#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/local_communicator.h>
#include <lockstep/parallel/collectives/local_round.h>
#include <lockstep/parallel/threads/barrier.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Algorithm = std::function<void(const LocalRound&)>;

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

Algorithm algorithm_of(Allreduce allreduce) {
  switch (allreduce) {
    case Allreduce::kRoot:
      return allreduce_root;
    case Allreduce::kTwoShot:
      return allreduce_two_shot;
    case Allreduce::kRing:
      return allreduce_ring;
    default:
      throw UsageError("replicas of one process sum with root, two_shot or ring");
  }
}

class LocalEndpoint : public Endpoint {
 public:
  LocalEndpoint(const CommunicatorOptions& options, int rank, Meeting& meeting)
      : options_(options),
        rank_(rank),
        meeting_(meeting),
        thread_(
            *this,
            {.local = rank, .devices = options.devices, .threads = options.threads, .trace = options.trace}) {
  }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(options_.devices.size()); }
  torch::Device device() const override { return options_.devices[static_cast<size_t>(rank_)]; }

  Work allreduce_sum(torch::Tensor tensor) override {
    // Alone there is nothing to add; what is wrong is reported all the same.
    if (world_size() == 1 && !error() && !unfit(*this, "allreduce", tensor)) return Work();
    return post("allreduce", tensor, algorithm_of(options_.algorithm));
  }

  Work broadcast(torch::Tensor tensor, int root) override {
    const auto copy = [root](const LocalRound& round) {
      if (round.rank != root) round.own().copy_(round.of(root));
    };
    return post(fmt::format("broadcast from {}", root), tensor, copy, unfit_root(*this, root));
  }

  Work all_gather(torch::Tensor tensor, torch::Tensor out) override {
    const auto copy = [out](const LocalRound& round) {
      const auto rows = out.view({round.world(), round.own().numel()});
      for (int other = 0; other < round.world(); ++other) rows[other].copy_(round.of(other));
    };
    return post("all_gather", tensor, copy, unfit_gather(*this, tensor, out));
  }

  void abort(std::exception_ptr error) override { meeting_.barrier.abort(std::move(error)); }
  std::exception_ptr error() const override { return meeting_.barrier.error(); }

 private:
  using Stream = std::optional<c10::Stream>;

  Work post(const std::string& what, const torch::Tensor& tensor, Algorithm algorithm,
            std::exception_ptr problem = nullptr) {
    const auto run = [this, what, tensor = tensor.detach(), algorithm = std::move(algorithm)](
                         const Stream& stream) { meet(what, tensor.view({-1}), algorithm, stream); };
    return thread_.post(what, tensor, run, problem);
  }

  // In the communication thread.
  void meet(const std::string& what, const torch::Tensor& tensor, const Algorithm& algorithm,
            const Stream& stream) {
    meeting_.tensors[static_cast<size_t>(rank_)] = tensor;
    meeting_.what[static_cast<size_t>(rank_)] = what;
    sync(stream);
    check_alike();
    algorithm({.rank = rank_, .tensors = meeting_.tensors, .sync = [&] { sync(stream); }});
    sync(stream);
    meeting_.tensors[static_cast<size_t>(rank_)].reset();
  }

  void sync(const Stream& stream) {
    if (stream) {
      auto& event = meeting_.queued[static_cast<size_t>(rank_)];
      event = std::make_shared<c10::Event>(device().type());
      event->record(*stream);
    }
    meeting_.barrier.arrive_and_wait();
    if (!meeting_.streams) return;
    for (const auto& event : meeting_.queued) {
      if (!event) continue;
      if (stream)
        event->block(*stream);
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
      throw UsageError(fmt::format("replicas disagree: rank 0 called {} of {}, rank {} called {} of {}",
                                   meeting_.what.front(), describe_elements(first), other,
                                   meeting_.what[other], describe_elements(tensor)),
                       "all replicas call the same collectives in the same order");
    }
  }

  const CommunicatorOptions& options_;
  const int rank_;
  Meeting& meeting_;
  CollectiveThread thread_;  // last: it uses all of the above
};

class LocalCommunicator : public Communicator {
 public:
  explicit LocalCommunicator(CommunicatorOptions options)
      : options_(std::move(options)), meeting_(options_.devices) {
    for (int rank = 0; rank < world_size(); ++rank) {
      endpoints_.push_back(std::make_unique<LocalEndpoint>(options_, rank, meeting_));
    }
  }

  ~LocalCommunicator() override {
    // Or a rank that waits for one that never came would keep its thread for ever.
    meeting_.barrier.abort(std::make_exception_ptr(UsageError("the communicator is gone")));
  }

  int world_size() const override { return static_cast<int>(options_.devices.size()); }
  int local_size() const override { return world_size(); }
  int first_rank() const override { return 0; }
  Endpoint& endpoint(int local) override { return *endpoints_.at(static_cast<size_t>(local)); }

 private:
  const CommunicatorOptions options_;
  Meeting meeting_;
  std::vector<std::unique_ptr<LocalEndpoint>> endpoints_;  // last: their threads use the meeting
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(CommunicatorOptions options) {
  if (options.devices.empty()) throw UsageError("a communicator needs at least one device");
  return std::make_unique<LocalCommunicator>(std::move(options));
}

}  // namespace lockstep
