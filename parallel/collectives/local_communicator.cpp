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

// State that the ranks of one process share.
struct SharedState {
  explicit SharedState(const std::vector<torch::Device>& devices)
      : barrier(static_cast<int>(devices.size())),
        streams(std::any_of(devices.begin(), devices.end(), [](auto device) { return !device.is_cpu(); })),
        tensors(devices.size()),
        what(devices.size()),
        queued(devices.size()) {}

  Barrier barrier;
  const bool streams;  // whether some rank's device has streams
  // One element per rank, written by the rank's own communication thread before a barrier.
  std::vector<torch::Tensor> tensors;               // of the collective in flight, each (n)
  std::vector<std::string> what;                    // name of the collective in flight
  std::vector<std::shared_ptr<c10::Event>> queued;  // end of the rank's queued work; null on a CPU
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
      throw UsageError("without NCCL the allreduce is root, two_shot or ring");
  }
}

class LocalEndpoint : public Endpoint {
 public:
  LocalEndpoint(const CommunicatorOptions& options, int rank, SharedState& shared)
      : options_(options),
        rank_(rank),
        shared_(shared),
        thread_(
            *this,
            {.local = rank, .devices = options.devices, .threads = options.threads, .trace = options.trace}) {
  }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(options_.devices.size()); }
  torch::Device device() const override { return options_.devices[static_cast<size_t>(rank_)]; }

  Work allreduce_sum(torch::Tensor tensor) override {
    // With one rank there is nothing to add; errors are still reported.
    if (world_size() == 1 && !error() && !tensor_problem(*this, "allreduce", tensor)) return Work();
    return post("allreduce", tensor, algorithm_of(options_.algorithm));
  }

  Work broadcast(torch::Tensor tensor, int root) override {
    const auto copy = [root](const LocalRound& round) {
      if (round.rank != root) round.own().copy_(round.of(root));
    };
    return post(fmt::format("broadcast from {}", root), tensor, copy, root_problem(*this, root));
  }

  Work all_gather(torch::Tensor tensor, torch::Tensor out) override {
    const auto copy = [out](const LocalRound& round) {
      const auto rows = out.view({round.world(), round.own().numel()});
      for (int other = 0; other < round.world(); ++other) rows[other].copy_(round.of(other));
    };
    return post("all_gather", tensor, copy, gather_problem(*this, tensor, out));
  }

  void abort(std::exception_ptr error) override { shared_.barrier.abort(std::move(error)); }
  std::exception_ptr error() const override { return shared_.barrier.error(); }

 private:
  using Stream = std::optional<c10::Stream>;

  Work post(const std::string& what, const torch::Tensor& tensor, Algorithm algorithm,
            std::exception_ptr problem = nullptr) {
    const auto run = [this, what, tensor = tensor.detach(), algorithm = std::move(algorithm)](
                         const Stream& stream) { run_round(what, tensor.view({-1}), algorithm, stream); };
    return thread_.post(what, tensor, run, problem);
  }

  // Called in the communication thread.
  void run_round(const std::string& what, const torch::Tensor& tensor, const Algorithm& algorithm,
                 const Stream& stream) {
    shared_.tensors[static_cast<size_t>(rank_)] = tensor;
    shared_.what[static_cast<size_t>(rank_)] = what;
    barrier(stream);
    check_alike();
    algorithm({.rank = rank_, .tensors = shared_.tensors, .barrier = [&] { barrier(stream); }});
    barrier(stream);
    shared_.tensors[static_cast<size_t>(rank_)].reset();
  }

  void barrier(const Stream& stream) {
    if (stream) {
      auto& event = shared_.queued[static_cast<size_t>(rank_)];
      event = std::make_shared<c10::Event>(device().type());
      event->record(*stream);
    }
    shared_.barrier.arrive_and_wait();
    if (!shared_.streams) return;
    for (const auto& event : shared_.queued) {
      if (!event) continue;
      if (stream)
        event->block(*stream);
      else
        event->synchronize();  // a CPU replica beside GPUs has no stream that could wait for the event
    }
    shared_.barrier.arrive_and_wait();  // no rank replaces its event while others still read it
  }

  void check_alike() const {
    const auto& first = shared_.tensors.front();
    for (size_t other = 1; other < shared_.tensors.size(); ++other) {
      const auto& tensor = shared_.tensors[other];
      const bool alike = tensor.numel() == first.numel() && tensor.scalar_type() == first.scalar_type() &&
                         shared_.what[other] == shared_.what.front();
      if (alike) continue;
      throw UsageError(fmt::format("replicas disagree: rank 0 called {} of {}, rank {} called {} of {}",
                                   shared_.what.front(), describe_elements(first), other, shared_.what[other],
                                   describe_elements(tensor)),
                       "all replicas call the same collectives in the same order");
    }
  }

  const CommunicatorOptions& options_;
  const int rank_;
  SharedState& shared_;
  CollectiveThread thread_;  // last: it uses all of the above
};

class LocalCommunicator : public Communicator {
 public:
  explicit LocalCommunicator(CommunicatorOptions options)
      : options_(std::move(options)), shared_(options_.devices) {
    for (int rank = 0; rank < world_size(); ++rank) {
      endpoints_.push_back(std::make_unique<LocalEndpoint>(options_, rank, shared_));
    }
  }

  ~LocalCommunicator() override {
    // Otherwise a rank that waits for another one would keep its thread for ever.
    shared_.barrier.abort(std::make_exception_ptr(UsageError("the communicator was destroyed")));
  }

  int world_size() const override { return static_cast<int>(options_.devices.size()); }
  int local_size() const override { return world_size(); }
  int first_rank() const override { return 0; }
  Endpoint& endpoint(int local) override { return *endpoints_.at(static_cast<size_t>(local)); }

 private:
  const CommunicatorOptions options_;
  SharedState shared_;
  std::vector<std::unique_ptr<LocalEndpoint>> endpoints_;  // last: their threads use the shared state
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(CommunicatorOptions options) {
  if (options.devices.empty()) throw UsageError("a communicator needs at least one device");
  return std::make_unique<LocalCommunicator>(std::move(options));
}

}  // namespace lockstep
