// ShardedOptimizer: what each replica holds, and checkpoints.
#include <lockstep/tests/catch.h>

#include <cstdlib>
#include <numeric>

#include <lockstep/data/train_checkpoint.h>
#include <lockstep/parallel/optimizer/named_state.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/sharded_loops.h>
#include <lockstep/tests/support/counting_allocator.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

TrainState by_files(const TrainState& state) {
  const TempFolder folder;
  write_checkpoint(folder / "state", to_checkpoint(state));
  return read_train_state(read_checkpoint(folder / "state"));
}

void check_same_state(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(found[i].name << " beside " << expected[i].name);
    CHECK(found[i].name == expected[i].name);
    CHECK(found[i].tensor.scalar_type() == expected[i].tensor.scalar_type());
    CHECK(found[i].tensor.is_contiguous());
    CHECK(found[i].tensor.equal(expected[i].tensor));
  }
}

struct Ended {
  TrainState state;
  torch::Tensor weights;
};

// Goes on from a state, if there is one, on this layout.
template <class T>
std::vector<Ended> ended(const Layout& layout, const ShardedCase& kind, int64_t steps,
                         const TrainState* from = nullptr) {
  return on_layout(layout, [&](const ReplicasOptions& options) {
    auto loop = loop_of<T>(options, kind);
    if (from) loop->load(loop->is_first() ? *from : TrainState());
    train_until(*loop, steps, kind);
    return Ended{.state = loop->state(), .weights = weights_of(*loop, &T::net)};
  });
}

int64_t bytes_of(const std::vector<NamedTensor>& state) {
  int64_t bytes = 0;
  for (const auto& item : state) {
    if (item.tensor.is_floating_point() && item.name != "adam.lr")
      bytes += static_cast<int64_t>(item.tensor.nbytes());
  }
  return bytes;
}

// The bytes of each rank's state.
std::vector<int64_t> bytes_by_rank(Replicas<Sharded>& loop) {
  std::vector<int64_t> bytes(static_cast<size_t>(loop.world_size()));
  loop.run([&](Sharded& own, Endpoint& endpoint) {
    bytes[static_cast<size_t>(endpoint.rank())] = own.optimizer.state_bytes();
  });
  return bytes;
}

}  // namespace

TEST_CASE("a sharded state has the names and tensors of an unsharded one, and goes on in any direction") {
  for (const auto& kind : kShardedKinds) {
    const auto written = ended<Sharded>({2}, kind, 4), unsharded = ended<Unsharded>({2}, kind, 4);
    INFO(kind.name);
    check_same_state(written[0].state.optimizer, unsharded[0].state.optimizer);
    const auto state = by_files(written[0].state);
    for (const Layout& layout : {Layout{2}, Layout{5}, Layout{1, 1}, Layout{1}}) {
      INFO("from 2 to " << text_of(layout) << " replicas");
      const auto plain = ended<Unsharded>(layout, kind, 8, &state),
                 sharded = ended<Sharded>(layout, kind, 8, &state);
      for (const auto& process : sharded) CHECK(process.weights.equal(plain[0].weights));
      check_same_state(sharded[0].state.optimizer, plain[0].state.optimizer);
    }
    // The bits of one run without a break.
    CHECK(ended<Sharded>({2}, kind, 8, &state)[0].weights.equal(ended<Sharded>({2}, kind, 8)[0].weights));
  }
}

TEST_CASE("a state is written in the middle, before a step, and loaded into an optimizer that has stepped") {
  const auto& kind = kShardedKinds[3];
  for (const auto& row : kShardedKinds) {
    INFO(row.name);
    const auto fresh = ended<Sharded>({3}, row, 0), plain = ended<Unsharded>({3}, row, 0);
    check_same_state(fresh[0].state.optimizer, plain[0].state.optimizer);
  }
  auto loop = loop_of<Sharded>(on_cpus(3), kind);
  train_until(*loop, 2, kind);
  const auto state = by_files(loop->state());
  train_until(*loop, 5, kind);
  const auto expected = weights_of(*loop, &Sharded::net);
  loop->load(state);
  CHECK(loop->steps_taken() == 2);
  train_until(*loop, 5, kind);
  CHECK(weights_of(*loop, &Sharded::net).equal(expected));
}

TEST_CASE("a state of another optimizer is refused, changes nothing, and names what differs") {
  const auto adam = ended<Unsharded>({1, 1}, kShardedKinds[3], 2);
  struct Case {
    const char* words;
    std::function<void(TrainState&)> change;
  };
  const Case cases[] = {
      {"optimizer.adam: the state has exp_avg_sq2.net.inner, which it does not",
       [](TrainState& state) { state.optimizer.back().name = "adam.exp_avg_sq2.net.inner"; }},
      {"has no lr", [](TrainState& state) { state.optimizer.erase(state.optimizer.begin()); }},
      {"is Float [3] in the state",
       [](TrainState& state) { state.optimizer.back().tensor = torch::zeros({3}); }},
      {"an optimizer that is not kept here",
       [](TrainState& state) {
         state.optimizer.push_back({"other.lr", torch::zeros({1}, torch::kFloat64)});
       }},
  };
  for (const auto& [words, change] : cases) {
    auto state = adam[0].state;
    change(state);
    const auto found = on_layout({1, 1}, [&](const ReplicasOptions& options) {
      auto loop = loop_of<Sharded>(options, kShardedKinds[3]);
      train_until(*loop, 2, kShardedKinds[3]);
      const auto refusal = refusal_of<WeightsError>([&] { loop->load(state); });
      train_until(*loop, 4, kShardedKinds[3]);
      return std::pair(refusal, weights_of(*loop, &Sharded::net));
    });
    const auto expected = ended<Sharded>({1, 1}, kShardedKinds[3], 4);
    for (const auto& [refusal, weights] : found) {
      CHECK_THAT(refusal, ContainsSubstring(words));
      CHECK(weights.equal(expected[0].weights));
    }
  }
}

TEST_CASE("each replica holds 1/N of the state and at most a block per bucket more, after steps and load()") {
  constexpr int64_t kTrained = 90 * 131 + 131 + 1 + 1 + 72 + 131 * 70 + 70 + 70 * 3, kBuckets = 4;
  for (const auto& kind : kShardedKinds) {
    const auto whole = ended<Unsharded>({1}, kind, 2);
    const auto all = bytes_of(whole[0].state.optimizer);
    const auto most = [&](int world) { return all / world + all / kTrained * 4'096 * kBuckets; };
    for (const int world : {1, 2, 3, 5, 8}) {
      INFO(kind.name << ", " << world << " replicas, " << all << " bytes in all");
      auto loop = loop_of<Sharded>(on_cpus(world), kind);
      for (const auto bytes : bytes_by_rank(*loop)) CHECK(bytes <= 10 * 4);  // Adagrad: one number of each
      train_until(*loop, 2, kind);
      auto bytes = bytes_by_rank(*loop);
      // Adagrad makes the state of a frozen parameter, too: one number of it, as it has no gradient.
      const int64_t frozen = kind.name == "Adagrad" ? (131 * 131 - world) * 4 : 0;
      CHECK(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) == all - frozen);
      for (const auto own : bytes) CHECK(own <= most(world));
      loop->load(whole[0].state);
      bytes = bytes_by_rank(*loop);
      CHECK(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) == all);
      for (const auto own : bytes) CHECK(own <= most(world));
    }
  }
}

TEST_CASE(
    "a model that fits into few buckets is held in parts that differ by a block of 4,096 elements at most") {
  for (const int world : {2, 3, 8}) {
    const std::vector<torch::Device> devices(static_cast<size_t>(world), torch::kCPU);
    ReplicaWorkers workers(devices, 1);
    const auto communicator = make_communicator({.devices = devices, .threads = 1});
    std::vector<int64_t> bytes(static_cast<size_t>(world));
    workers.run(*communicator, [&](int local, Endpoint& endpoint) {
      const auto own = torch::zeros({1'000'003}, torch::requires_grad());
      own.mutable_grad() = torch::ones_like(own);
      ShardedOptimizer adam(torch::optim::Adam({own}));
      adam.step(endpoint);
      bytes[static_cast<size_t>(local)] = adam.state_bytes();
    });
    for (const auto own : bytes) CHECK(std::abs(own - 8'000'024 / world) <= 2 * 4 * 4'096);
  }
}

TEST_CASE("in a loop of GradientSync alone state() and load() have the form of Replicas' checkpoints") {
  const auto& kind = kShardedKinds[4];  // Adam with amsgrad
  const std::vector<torch::Device> devices(3, torch::kCPU);
  ReplicaWorkers workers(devices, 1);
  const auto communicator = make_communicator({.devices = devices, .threads = 1});
  std::vector<NamedTensor> state, expected;
  std::vector<torch::Tensor> weights(3), plain(3);
  std::vector<std::string> refusals(3);
  const auto train = [](auto& own, GradientSync& sync, Endpoint& endpoint, int steps) {
    for (int i = 0; i < steps; ++i) {
      own.zero_grad();
      (own.net->forward(torch::full({2, 90}, .1 * endpoint.rank() + i)).square().sum() / 6).backward();
      sync.wait();
      own.update(endpoint);
    }
  };
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    const auto rank = static_cast<size_t>(local);
    Unsharded whole(kind);
    GradientSync whole_sync(endpoint);
    whole_sync.attach(*whole.net);
    train(whole, whole_sync, endpoint, 3);
    Sharded own(kind);
    GradientSync sync(endpoint);
    sync.attach(*own.net);
    train(own, sync, endpoint, 3);
    weights[rank] = flat_copy(*own.net);
    plain[rank] = flat_copy(*whole.net);
    auto gathered = own.optimizer.state(*own.net, endpoint);
    if (local != 0) refusals[rank] = gathered.empty() ? "" : "rank 0 alone gets the state";
    if (local == 0) {
      state = gathered;
      expected = optimizer_state(*whole.optimizer, [&](const torch::Tensor& param) {
        for (const auto& item : distinct_parameters(*whole.net)) {
          if (item.tensor.is_same(param)) return item.name;
        }
        return std::string();
      });
    }
  });
  check_same_state(state, expected);
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(weights[rank].equal(plain[rank]));
    CHECK(refusals[rank].empty());
  }
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    const auto rank = static_cast<size_t>(local);
    Sharded own(kind);
    GradientSync sync(endpoint);
    sync.attach(*own.net);
    auto other = state;
    if (local == 1) other.pop_back();
    refusals[rank] = refusal_of<UsageError>([&] { own.optimizer.load(other, *own.net, endpoint); });
    own.optimizer.load(state, *own.net, endpoint);
    auto loaded = own.optimizer.state(*own.net, endpoint);
    if (local == 0) expected = loaded;
  });
  for (const auto& refusal : refusals)
    CHECK_THAT(refusal, ContainsSubstring("the states differ: rank 1 has"));
  check_same_state(expected, state);
}

namespace {

constexpr int64_t kLayers = 8, kWidth = 256, kLayerBytes = 4 * kWidth * kWidth;

torch::nn::Sequential equal_layers() {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i)
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
  return net;
}

struct EqualLayers {
  torch::nn::Sequential net = equal_layers();
  ShardedOptimizer adam{torch::optim::Adam(net->parameters()), {.bucket_bytes = 1}};
};

std::unique_ptr<Replicas<EqualLayers>> loop_of_equal_layers(const ReplicasOptions& options) {
  auto loop = std::make_unique<Replicas<EqualLayers>>(options);
  loop->attach(&EqualLayers::net);
  loop->keep(&EqualLayers::adam);
  return loop;
}

}  // namespace

TEST_CASE("a process that goes on holds one tensor of a state at a time beside its own parts") {
  const auto state = on_layout({1, 1}, [](const ReplicasOptions& options) {
    auto loop = loop_of_equal_layers(options);
    loop->step(Pair(torch::ones({4, kWidth}), torch::ones({4, 1})),
               [](EqualLayers& own, const Tuple& shard, Step& step) {
                 own.adam.zero_grad();
                 (own.net->forward(std::get<0>(shard)).square().sum() / step.rows()).backward();
                 step.wait();
                 own.adam.step(step);
               });
    return loop->state();
  })[0];
  REQUIRE(state.optimizer.size() == 1 + 3 * kLayers);
  const CountingAllocator allocator;  // of both processes, which are threads
  const auto grown = on_layout({1, 1}, [&](const ReplicasOptions& options) {
    auto loop = loop_of_equal_layers(options);
    loop->barrier();
    const auto before = CountingAllocator::live();
    if (loop->is_first()) CountingAllocator::forget_most();
    loop->barrier();
    loop->load(loop->is_first() ? state : TrainState());
    loop->barrier();
    return CountingAllocator::most() - before;
  });
  // Both moments once, and of one layer: its values in the other process, the parts of both.
  for (const auto bytes : grown) {
    CHECK(bytes >= 2 * kLayers * kLayerBytes);
    CHECK(bytes <= (2 * kLayers + 5) * kLayerBytes);
  }
}
