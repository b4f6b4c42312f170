// Hooks that sum the buckets, Work::then(), and bf16_hook().
#include <lockstep/tests/catch.h>
#include <cmath>
#include <stdexcept>
#include <thread>

#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>
#include <lockstep/tests/support/mishap.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr size_t kParams = WholeGradientsImpl::kParams;
const auto kAllReached = [](size_t) { return true; };

// The gradients of one step with this hook, by rank and parameter.
std::vector<std::vector<torch::Tensor>> gradients_with(SyncWorld& world, SyncMode mode,
                                                       const BucketHook& hook) {
  return by_rank(world, [&](int rank, Endpoint& endpoint) {
    std::vector<torch::Tensor> gradients;
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256, .hook = hook});
    sync.attach(net);
    net.backward(rank, 0, kAllReached);
    sync.wait();
    for (const auto& param : net.params()) gradients.push_back(param.grad().clone());
    if (!sync.flat_gradients().sum().equal(torch::cat(gradients).sum())) {
      throw std::runtime_error("something between the gradients");
    }
    return gradients;
  });
}

torch::Tensor sum_over_ranks(int world, size_t param) {
  const WholeGradientsImpl net;
  auto sum = net.gradient(param, 0, 0);
  for (int rank = 1; rank < world; ++rank) sum = sum + net.gradient(param, rank, 0);
  return sum;
}

// Calls of one replica's hook, and what was wrong with them.
struct Calls {
  std::vector<int> order = {};
  int64_t elements = 0;
  std::string wrong = {};
};

// Sums as without a hook, and looks whether all is as promised.
BucketHook watching_hook(Calls& calls, int rank, const WholeGradientsImpl& net) {
  return [&calls, rank, &net, thread = std::this_thread::get_id()](Endpoint& endpoint,
                                                                   const GradientBucket& bucket) {
    const auto& gradients = bucket.gradients;
    calls.order.push_back(bucket.index);
    calls.elements += gradients.numel();
    if (std::this_thread::get_id() != thread) calls.wrong += "another thread; ";
    if (torch::GradMode::is_enabled()) calls.wrong += "with autograd; ";
    if (endpoint.rank() != rank) calls.wrong += "another endpoint; ";
    if (bucket.count != 4) calls.wrong += std::to_string(bucket.count) + " buckets; ";
    if (gradients.dim() != 1 || !gradients.is_contiguous()) calls.wrong += "not flat; ";
    auto own = torch::zeros({});  // p5 | p4 p3 | p2 | p1 p0, by the bounds of 256 bytes
    const std::vector<std::vector<size_t>> params = {{5}, {4, 3}, {2}, {1, 0}};
    for (const auto param : params.at(static_cast<size_t>(bucket.index))) {
      own = own + net.gradient(param, rank, 0).sum();
    }
    if (!gradients.sum().equal(own)) calls.wrong += "not this replica's gradients; ";
    return endpoint.allreduce_gradients(gradients);
  };
}

}  // namespace

TEST_CASE("a hook sees each bucket of its replica once per step, in order, in the replica's thread") {
  const int world_size = GENERATE(1, 2, 3);
  for (const auto mode : kModes) {
    // One bucket per parameter in parameterwise mode has no place in watching_hook's table.
    if (mode == SyncMode::kParameterwise) continue;
    INFO(world_size << " replicas, " << name_of(kSyncModeNames, mode));
    SyncWorld world(world_size);
    const auto calls = by_rank(world, [&](int rank, Endpoint& endpoint) {
      Calls own;
      WholeGradientsImpl net;
      GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256, .hook = watching_hook(own, rank, net)});
      sync.attach(net);
      for (int step = 0; step < 2; ++step) {
        net.zero_grad();
        net.backward(rank, 0, kAllReached);
        const auto during_backward = mode == SyncMode::kOverlapped ? 4U : 0U;
        if (own.order.size() != 4U * static_cast<unsigned>(step) + during_backward) own.wrong += "when; ";
        sync.wait();
      }
      for (size_t i = 0; i < kParams; ++i) {
        if (!net.params()[i].grad().equal(sum_over_ranks(world_size, i))) own.wrong += "sum; ";
      }
      return own;
    });
    for (const auto& own : calls) {
      CHECK(own.order == std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3});
      CHECK(own.elements == 2 * (48 + 16 + 112 + 32 + 16 + 64));
      CHECK(own.wrong.empty());
    }
  }
}

TEST_CASE("what a hook leaves in a bucket is what wait() leaves in the gradients") {
  const int world_size = GENERATE(1, 2, 3);
  const auto mode = GENERATE_COPY(from_range(kModes));
  INFO(world_size << " replicas, " << name_of(kSyncModeNames, mode));
  SyncWorld world(world_size);
  // After the sum: twice as much and one more, also between the gradients, where it is dropped.
  const auto replaced = gradients_with(world, mode, [](Endpoint& endpoint, const GradientBucket& bucket) {
    return endpoint.allreduce_gradients(bucket.gradients).then([bucket] {
      bucket.gradients.mul_(2).add_(1);
    });
  });
  // Before the sum.
  const auto scaled = gradients_with(world, mode, [](Endpoint& endpoint, const GradientBucket& bucket) {
    return endpoint.allreduce_sum(bucket.gradients.mul_(-3));
  });
  // Another sum after the first: each replica adds the total once more.
  const auto twice = gradients_with(world, mode, [](Endpoint& endpoint, const GradientBucket& bucket) {
    return endpoint.allreduce_sum(bucket.gradients).then([&endpoint, bucket] {
      endpoint.allreduce_sum(bucket.gradients).wait();
    });
  });
  // Nothing is summed.
  const auto none = gradients_with(world, mode, [](Endpoint&, const GradientBucket&) { return Work(); });
  const WholeGradientsImpl net;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    for (size_t i = 0; i < kParams; ++i) {
      const auto sum = sum_over_ranks(world_size, i);
      CHECK(replaced[r][i].equal(2 * sum + 1));
      CHECK(scaled[r][i].equal(-3 * sum));
      CHECK(twice[r][i].equal(world_size * sum));
      CHECK(none[r][i].equal(net.gradient(i, rank, 0)));
    }
  }
}

TEST_CASE("an error of a hook, or of what it does after a sum, ends all replicas with that error") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const bool in_work = GENERATE(false, true);
  const int bucket_that_fails = GENERATE(0, 3);
  INFO(name_of(kSyncModeNames, mode) << (in_work ? ", after the sum" : "") << ", " << bucket_that_fails);
  SyncWorld world(3);
  const BucketHook hook = [&](Endpoint& endpoint, const GradientBucket& bucket) {
    const bool fails = endpoint.rank() == 1 && bucket.index == bucket_that_fails;
    if (fails && !in_work) throw Mishap("the hook of rank 1");
    return endpoint.allreduce_gradients(bucket.gradients).then([fails] {
      if (fails) throw Mishap("the hook of rank 1");
    });
  };
  const auto errors = by_rank(world, [&](int rank, Endpoint& endpoint) -> std::string {
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256, .hook = hook});
    sync.attach(net);
    try {
      for (int step = 0; step < 2; ++step) {  // a replica may be done with the sum that rank 1 fails after
        net.zero_grad();
        net.backward(rank, 0, kAllReached);
        sync.wait();
      }
    } catch (const Mishap& error) {
      return error.what();
    }
    return "none";
  });
  for (const auto& error : errors) CHECK(error == "the hook of rank 1");
}

TEST_CASE("Work::then() calls its functions once, in order, and none after an error") {
  std::vector<int> called;
  auto work = Work().then([&] { called.push_back(1); }).then([&] { called.push_back(2); });
  CHECK(called.empty());
  work.wait();
  work.wait();
  CHECK(called == std::vector<int>{1, 2});

  const auto communicator = cpu_communicator(2);
  called.clear();
  Work sum = communicator->endpoint(0).allreduce_sum(torch::ones({2}));
  auto then = sum.then([&] { called.push_back(3); });
  sum.wait();  // nothing is left to wait for
  communicator->endpoint(1).abort(std::make_exception_ptr(Mishap("lost")));
  CHECK_THROWS_AS(then.wait(), Mishap);
  CHECK_NOTHROW(then.wait());
  CHECK(called.empty());
}

TEST_CASE("bf16_hook sums whole numbers that bf16 holds exactly") {
  const int world_size = GENERATE(1, 2, 3);  // below 2^8: the numbers below 50 have exact sums of up to three
  const auto mode = GENERATE_COPY(from_range(kModes));
  SyncWorld world(world_size);
  for (const auto& gradients : gradients_with(world, mode, bf16_hook())) {
    for (size_t i = 0; i < kParams; ++i) CHECK(gradients[i].equal(sum_over_ranks(world_size, i)));
  }
}

TEST_CASE("the error of bf16_hook is below its bound, and all replicas get the same bits") {
  const int world_size = GENERATE(1, 2, 3);
  SyncWorld world(world_size);
  constexpr int64_t kNumbers = 5000;
  std::vector<torch::Tensor> own;
  auto exact = torch::zeros({kNumbers}, torch::kFloat64);
  auto absolute = exact.clone();
  for (int rank = 0; rank < world_size; ++rank) {  // of many magnitudes and both signs
    const auto angles = torch::arange(kNumbers, torch::kFloat64) * (1.3 + rank) + rank;
    own.push_back((angles.sin() * (angles * .37).cos().mul(9).exp()).to(torch::kFloat));
    exact = exact + own.back();
    absolute = absolute + own.back().abs();
  }
  const auto found = by_rank(world, [&](int rank, Endpoint& endpoint) {
    auto gradients = own[static_cast<size_t>(rank)].clone();
    bf16_hook()(endpoint, {.gradients = gradients}).wait();
    return gradients;
  });
  const double u = std::ldexp(1., -8);
  const auto bound = (std::pow(1 + u, world_size) - 1) * absolute;
  const auto error = (found[0] - exact).abs();
  CHECK((error <= bound).all().item<bool>());
  // In a world of one nothing is rounded, and in others the bound is not idle.
  if (world_size == 1) CHECK(found[0].equal(own[0]));
  if (world_size > 1) CHECK((error / absolute).max().item<double>() > u / 2);
  for (const auto& result : found) CHECK(same_bits(result, found[0]));
}

TEST_CASE("bf16_hook refuses gradients that are not float") {
  const auto errors = refusals(2, [](int, Endpoint& endpoint) {
    bf16_hook()(endpoint, {.gradients = torch::ones({3}, torch::kFloat64)});
  });
  for (const auto& error : errors) CHECK_THAT(error, ContainsSubstring("but these are Double"));
}
