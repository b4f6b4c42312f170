#include <fmt/format.h>

#include <optional>

#include <lockstep/parallel/collectives/allreduce/local_algorithms.h>
#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/dtypes.h>
#include <lockstep/parallel/collectives/host_communicator.h>
#include <lockstep/parallel/collectives/local_round.h>
#include <lockstep/parallel/collectives/ordered_sum.h>
#include <lockstep/parallel/collectives/part_collectives.h>
#include <lockstep/parallel/collectives/process_exchange.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/threads/barrier.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Algorithm = std::function<void(const LocalRound&)>;

// Null for one process.
std::unique_ptr<ProcessExchange> open_exchange(const CommunicatorOptions& options, const RankLayout& layout) {
  if (layout.processes() == 1) return nullptr;
  return std::make_unique<ProcessExchange>(
      ProcessExchange{.layout = layout,
                      .channels = open_channels(*options.process_group, layout.most_replicas()),
                      .own = std::vector<torch::Tensor>(options.devices.size())});
}

// State that the local replicas share.
struct SharedState {
  SharedState(const CommunicatorOptions& options, const RankLayout& ranks)
      : layout(ranks),
        exchange(open_exchange(options, ranks)),
        barrier(static_cast<int>(options.devices.size())),
        streams(any_gpu(options.devices)),
        tensors(options.devices.size()),
        calls(options.devices.size()),
        queued(options.devices.size()) {}

  // Ends every wait of a local replica, for another one and for other processes.
  void abort(std::exception_ptr error) {
    barrier.abort(std::move(error));
    if (!exchange) return;
    for (const auto& channel : exchange->channels) channel->abort(barrier.error());
  }

  const RankLayout layout;
  const std::unique_ptr<ProcessExchange> exchange;
  Barrier barrier;
  const bool streams;  // some replica's device has streams
  // One element per replica, written by the replica's own communication thread before a barrier.
  std::vector<torch::Tensor> tensors;               // of the collective in flight, each (n)
  std::vector<Call> calls;                          // the collective in flight
  std::vector<std::shared_ptr<c10::Event>> queued;  // end of the replica's queued work; null on a CPU
};

Algorithm algorithm_of(Allreduce allreduce) {
  if (allreduce == Allreduce::kGloo) return allreduce_gloo;
  if (const auto* local = find_local_algorithm(allreduce)) return local->sum;
  throw UsageError(fmt::format("allreduce {} is not one without NCCL", name_of(kAllreduceNames, allreduce)));
}

class HostEndpoint : public Endpoint {
 public:
  HostEndpoint(const CommunicatorOptions& options, int local, SharedState& shared)
      : options_(options),
        local_(local),
        shared_(shared),
        thread_(*this, {.local = local,
                        .devices = options.devices,
                        .threads = options.threads.value(),
                        .trace = options.trace}) {}

  int rank() const override { return shared_.layout.first_rank() + local_; }
  int world_size() const override { return shared_.layout.world_size(); }
  torch::Device device() const override { return options_.devices[static_cast<size_t>(local_)]; }

  Work allreduce_sum(torch::Tensor tensor) override {
    // With one rank there is nothing to add; errors are still reported.
    if (world_size() == 1 && !error() && !sum_problem(*this, tensor)) return Work();
    return sum("allreduce", tensor, algorithm_of(options_.algorithm));
  }

  Work allreduce_gradients(torch::Tensor tensor) override {
    const auto compress = options_.compress;
    const auto type = tensor.scalar_type();
    if (compress == Compress::kNone || (type != torch::kFloat && type != torch::kComplexFloat)) {
      return allreduce_sum(tensor);
    }
    const auto algorithm = [compress](const LocalRound& round) {
      allreduce_in_order(round, sent_type(compress));
    };
    return sum(compress == Compress::kBf16 ? "allreduce in bf16" : "allreduce in fp16", tensor, algorithm);
  }

  Work broadcast(torch::Tensor tensor, int root) override {
    const auto copy = [root](const LocalRound& round) {
      const int holder = round.exchange ? receive_from(round, root) : root;
      if (round.local != holder) round.own().copy_(round.of(holder));
    };
    return move_bytes(call_of("broadcast", tensor, root), tensor, copy, root_problem(*this, tensor, root));
  }

  Work all_gather(torch::Tensor tensor, torch::Tensor out) override {
    const auto copy = [this, out = out.detach()](const LocalRound& round) {
      const auto rows = as_bytes(out).view({world_size(), round.own().numel()});
      if (round.exchange) return gather_from_all(round, rows);
      for (int other = 0; other < round.size(); ++other) rows[other].copy_(round.of(other));
    };
    return move_bytes(call_of("all_gather", tensor), tensor, copy, gather_problem(*this, tensor, out));
  }

  Work reduce_scatter(torch::Tensor tensor, PartBounds bounds) override {
    const auto problem = parts_problem(*this, "reduce_scatter", tensor, bounds);
    if (world_size() == 1 && !error() && !problem) return Work();
    const auto sum = [bounds = std::move(bounds)](const LocalRound& round) {
      round.exchange ? reduce_scatter_gloo(round, bounds) : reduce_scatter_locally(round, bounds);
    };
    return post(call_of("reduce_scatter", tensor), tensor.detach(), sum, problem);
  }

  Work gather_parts(torch::Tensor tensor, PartBounds bounds) override {
    const auto problem = parts_problem(*this, "gather_parts", tensor, bounds);
    if (world_size() == 1 && !error() && !problem) return Work();
    const auto copy = [bounds = std::move(bounds)](const LocalRound& round) {
      round.exchange ? gather_parts_gloo(round, bounds) : gather_parts_locally(round, bounds);
    };
    return post(call_of("gather_parts", tensor), tensor.detach(), copy, problem);
  }

  void abort(std::exception_ptr error) override { shared_.abort(std::move(error)); }
  std::exception_ptr error() const override { return shared_.barrier.error(); }
  int64_t posted() const override { return thread_.posted(); }

 private:
  using Stream = std::optional<c10::Stream>;

  Call call_of(const char* name, const torch::Tensor& tensor, int root = -1) const {
    return {.number = static_cast<uint64_t>(posted()),
            .name = name,
            .root = root,
            .elements = tensor.numel(),
            .type = tensor.scalar_type()};
  }

  Work sum(const char* name, const torch::Tensor& tensor, Algorithm algorithm) {
    const auto problem = sum_problem(*this, tensor);
    const auto addends = problem ? tensor : addends_of(tensor.detach());
    return sum_into(tensor, addends, post(call_of(name, tensor), addends, std::move(algorithm), problem));
  }

  Work move_bytes(const Call& call, const torch::Tensor& tensor, Algorithm algorithm,
                  const std::exception_ptr& problem) {
    return post(call, problem ? tensor : as_bytes(tensor.detach()), std::move(algorithm), problem);
  }

  // tensor: on which the algorithm works, unless there is a problem.
  Work post(const Call& call, const torch::Tensor& tensor, Algorithm algorithm, std::exception_ptr problem) {
    const auto run = [this, call, tensor, algorithm = std::move(algorithm)](const Stream& stream) {
      run_round(call, tensor.view({-1}), algorithm, stream);
    };
    return thread_.post(name_of(call), tensor, run, std::move(problem));
  }

  // Called in the communication thread.
  void run_round(const Call& call, const torch::Tensor& tensor, const Algorithm& algorithm,
                 const Stream& stream) {
    shared_.tensors[static_cast<size_t>(local_)] = tensor;
    shared_.calls[static_cast<size_t>(local_)] = call;
    barrier(stream);
    check_alike();
    const LocalRound round{.local = local_,
                           .call = call,
                           .tensors = shared_.tensors,
                           .barrier = [&] { barrier(stream); },
                           .exchange = shared_.exchange.get()};
    if (round.exchange && tensor.numel() == 0)
      compare_with_other_processes(round);
    else
      algorithm(round);
    barrier(stream);
    shared_.tensors[static_cast<size_t>(local_)].reset();
  }

  void barrier(const Stream& stream) {
    if (stream) {
      auto& event = shared_.queued[static_cast<size_t>(local_)];
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
    shared_.barrier.arrive_and_wait();  // no replica replaces its event while others still read it
  }

  // Compares the local replicas' calls. Channels compare those of the processes.
  void check_alike() const {
    const int first_rank = shared_.layout.first_rank();
    const auto& first = shared_.calls.front();
    const auto said = [](const Call& call) {
      return fmt::format("{} of {} elements of {}", name_of(call), call.elements, c10::toString(call.type));
    };
    for (size_t other = 1; other < shared_.calls.size(); ++other) {
      const auto& call = shared_.calls[other];
      if (call == first) continue;
      throw UsageError(fmt::format("replicas disagree: rank {} called {}, rank {} called {}", first_rank,
                                   said(first), first_rank + static_cast<int>(other), said(call)),
                       "all replicas call the same collectives in the same order");
    }
  }

  const CommunicatorOptions& options_;
  const int local_;
  SharedState& shared_;
  CollectiveThread thread_;  // last: it uses all of the above
};

class HostCommunicator : public Communicator {
 public:
  HostCommunicator(CommunicatorOptions options, const RankLayout& layout)
      : options_(std::move(options)), shared_(options_, layout) {
    for (int local = 0; local < local_size(); ++local) {
      endpoints_.push_back(std::make_unique<HostEndpoint>(options_, local, shared_));
    }
  }

  ~HostCommunicator() override {
    // Otherwise a replica that waits for another one, or for another process, would keep its thread for ever.
    shared_.abort(std::make_exception_ptr(UsageError("the communicator was destroyed")));
  }

  int world_size() const override { return shared_.layout.world_size(); }
  int local_size() const override { return static_cast<int>(options_.devices.size()); }
  int first_rank() const override { return shared_.layout.first_rank(); }
  Endpoint& endpoint(int local) override { return *endpoints_.at(static_cast<size_t>(local)); }

 private:
  const CommunicatorOptions options_;  // first: its process group outlives the channels
  SharedState shared_;
  std::vector<std::unique_ptr<HostEndpoint>> endpoints_;  // last: their threads use the shared state
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(CommunicatorOptions options, const RankLayout& layout) {
  return std::make_unique<HostCommunicator>(std::move(options), layout);
}

}  // namespace lockstep
