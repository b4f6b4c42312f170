// Parameters that a step does not reach, with UnusedParameters::kZero.
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/gradients/sync_world.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kPatterns = 6;

// Which parameters the loss of a rank reaches.
bool is_reached(int pattern, int rank, size_t param) {
  switch (pattern) {
    case 0:
      return true;
    case 1:  // others on each rank
      return (static_cast<int>(param) + rank) % 3 != 0;
    case 2:  // two on no rank
      return param != 1 && param != 3;
    case 3:  // rank 0 runs no backward
      return rank != 0;
    case 4:  // none does
      return false;
    default:  // one each
      return static_cast<int>(param) == rank;
  }
}

// The micro-batches of a step, each with its pattern; all but the last within no_sync().
std::vector<int> patterns_of(int step, bool micro_batches) {
  if (!micro_batches) return {step};
  return {step, (step + 2) % kPatterns, (step + 4) % kPatterns};
}

torch::Tensor expected_gradient(const WholeGradientsImpl& net, size_t param, int world,
                                const std::vector<int>& patterns) {
  auto sum = torch::zeros_like(net.params()[param]);
  for (int rank = 0; rank < world; ++rank) {
    for (const int pattern : patterns) {
      if (is_reached(pattern, rank, param)) sum = sum + net.gradient(param, rank, pattern);
    }
  }
  return sum.detach();
}

void backward_pass(const WholeGradientsImpl& net, int rank, int pattern) {
  net.backward(rank, pattern, [&](size_t param) { return is_reached(pattern, rank, param); });
}

// Names each gradient that is wrong after steps of all patterns.
std::string wrong_gradients(int rank, Endpoint& endpoint, SyncMode mode, bool to_none, bool micro_batches) {
  WholeGradientsImpl net;
  GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256, .unused = UnusedParameters::kZero});
  sync.attach(net);
  std::string wrong;
  for (int step = 0; step < kPatterns; ++step) {
    net.zero_grad(to_none);
    const auto patterns = patterns_of(step, micro_batches);
    {
      const auto no_sync = sync.no_sync();
      for (size_t m = 0; m + 1 < patterns.size(); ++m) backward_pass(net, rank, patterns[m]);
    }
    backward_pass(net, rank, patterns.back());
    sync.wait();
    auto total = torch::zeros({});
    for (size_t i = 0; i < WholeGradientsImpl::kParams; ++i) {
      const auto& grad = net.params()[i].grad();
      const auto expected = expected_gradient(net, i, endpoint.world_size(), patterns);
      const bool right = grad.defined() && grad.equal(expected) && grad.is_alias_of(sync.flat_gradients());
      if (!right) wrong += "step " + std::to_string(step) + " p" + std::to_string(i) + "; ";
      total = total + expected.sum();
    }
    if (!sync.flat_gradients().sum().equal(total)) wrong += "something between the gradients; ";
  }
  return wrong;
}

}  // namespace

TEST_CASE("with kZero every replica gets the sum over the replicas that have reached a parameter") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const bool micro_batches = GENERATE(false, true);
  SyncWorld world(world_size);
  for (const auto mode : kModes) {
    for (const bool to_none : {true, false}) {
      INFO(world_size << " replicas, " << name_of(kSyncModeNames, mode)
                      << (to_none ? ", gradients dropped" : ", gradients zeroed")
                      << (micro_batches ? ", micro-batches" : ""));
      const auto wrong = by_rank(world, [&](int rank, Endpoint& endpoint) {
        return wrong_gradients(rank, endpoint, mode, to_none, micro_batches);
      });
      CHECK(wrong == std::vector<std::string>(static_cast<size_t>(world_size)));
    }
  }
}

TEST_CASE("without kZero each of these steps is an error on every replica") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  for (int pattern = 1; pattern < kPatterns; ++pattern) {
    const auto errors = refusals(2, [&](int rank, Endpoint& endpoint) {
      WholeGradientsImpl net;
      GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256});
      sync.attach(net);
      backward_pass(net, rank, pattern);
      sync.wait();
    });
    for (const auto& error : errors) {
      CHECK_THAT(error, ContainsSubstring("of 6 parameters; no gradient for p") ||
                            ContainsSubstring("no backward pass outside a no_sync()"));
    }
  }
}

// One bucket per parameter, and p5's is the first.
TEST_CASE("in overlapped mode the buckets before an unreached parameter are still posted during backward") {
  const auto wrong = by_rank(2, [](int rank, Endpoint& endpoint) {
    std::string what;
    std::vector<int> posted;
    GradientSyncOptions options{.bucket_bytes = 1, .unused = UnusedParameters::kZero};
    options.hook = [&posted](Endpoint& own, const GradientBucket& bucket) {
      posted.push_back(bucket.index);
      return own.allreduce_gradients(bucket.gradients);
    };
    WholeGradientsImpl net;
    GradientSync sync(endpoint, options);
    sync.attach(net);
    const size_t unreached = rank == 0 ? 2 : 4;
    net.backward(rank, 0, [&](size_t param) { return param != unreached; });
    if (posted.size() != 5 - unreached) what += std::to_string(posted.size()) + " during backward; ";
    sync.wait();
    if (posted != std::vector<int>{0, 1, 2, 3, 4, 5}) what += "another order";
    return what;
  });
  CHECK(wrong == std::vector<std::string>(2));
}
