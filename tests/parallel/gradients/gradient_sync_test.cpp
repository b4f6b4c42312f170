#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>
#include <chrono>
#include <thread>

#include <lockstep/models/initialize.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Three layers. The second can be left out.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(uint64_t seed = 0) {
    const SeededGenerator generator(seed);  // replicas are built at the same time
    first = register_module("first", torch::nn::Linear(6, 40));
    second = register_module("second", torch::nn::Linear(40, 40));
    third = register_module("third", torch::nn::Linear(40, 3));
    to(torch::kFloat64);
  }
  torch::Tensor forward(torch::Tensor X) {  // (n, 6) -> (n, 3)
    auto h = torch::tanh(first(X));
    on_hidden(h);
    if (use_second) h = torch::tanh(second(h));
    return third(h);
  }

  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  bool use_second = true;
  std::function<void(torch::Tensor&)> on_hidden = [](torch::Tensor&) {};
};

torch::Tensor inputs(int64_t rows) {  // (rows, 6)
  return torch::arange(rows * 6, torch::kFloat64).mul(7).remainder(13).view({rows, 6}) / 13;
}

torch::Tensor loss_of(NetImpl& net, const torch::Tensor& X, int64_t rows) {
  return net.forward(X).square().sum() / rows;
}

// Gradients of plain torch on all rows.
Params whole_gradients(int64_t rows) {
  NetImpl net;
  loss_of(net, inputs(rows), rows).backward();
  Params gradients;
  for (const auto& param : net.parameters()) gradients.push_back(param.grad());
  return gradients;
}

// One replica with an attached network, for what it refuses.
std::string refusal_alone(const std::function<void(NetImpl& net, GradientSync& sync)>& task) {
  return refusals(1, [&](int, Endpoint& endpoint) {
    NetImpl net;
    GradientSync sync(endpoint);
    sync.attach(net);
    task(net, sync);
  })[0];
}

const auto kAll = [](size_t) { return true; };

}  // namespace

TEST_CASE("in a loop with a torch optimizer replicas train as one, with either kind of zero_grad()") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const bool to_none = GENERATE(true, false);
  constexpr int kWorld = 3;
  constexpr int64_t kRows = 12;
  INFO(name_of(kSyncModeNames, mode) << (to_none ? ", gradients dropped" : ", gradients zeroed"));

  NetImpl whole;
  torch::optim::SGD whole_sgd(whole.parameters(), torch::optim::SGDOptions(.1).momentum(.9));
  for (int step = 0; step < 4; ++step) {
    whole_sgd.zero_grad(to_none);
    loss_of(whole, inputs(kRows), kRows).backward();
    whole_sgd.step();
  }

  const auto trained = by_rank(kWorld, [&](int rank, Endpoint& endpoint) {
    NetImpl net(static_cast<uint64_t>(rank));  // attach() gives all of them rank 0's weights
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 4096});
    sync.attach(net);
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(.1).momentum(.9));
    const auto X = inputs(kRows).chunk(kWorld)[static_cast<size_t>(rank)];
    for (int step = 0; step < 4; ++step) {
      sgd.zero_grad(to_none);
      loss_of(net, X, kRows).backward();
      sync.wait();
      sgd.step();
    }
    return net.parameters();
  });
  for (const auto& params : trained) {
    for (size_t i = 0; i < params.size(); ++i) {
      CHECK(max_difference(params[i], whole.parameters()[i]) <= 1e-13);
      CHECK(params[i].equal(trained[0][i]));
    }
  }
}

TEST_CASE("a replica without rows and a replica with micro-batches give the whole batch's gradients") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const auto expected = whole_gradients(9);
  const auto gradients = by_rank(3, [&](int rank, Endpoint& endpoint) {
    NetImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 4096});
    sync.attach(net);
    if (rank == 0) {
      loss_of(net, inputs(9).slice(0, 0, 2), 9).backward();
      sync.wait();
    } else if (rank == 1) {
      sync.flat_gradients().zero_();
      sync.allreduce_all();
    } else {
      {
        const auto no_sync = sync.no_sync();
        {
          const auto nested = sync.no_sync();
          loss_of(net, inputs(9).slice(0, 2, 5), 9).backward();
        }
        loss_of(net, inputs(9).slice(0, 5, 8), 9).backward();
      }
      loss_of(net, inputs(9).slice(0, 8, 9), 9).backward();
      sync.wait();
    }
    Params own;
    for (const auto& param : net.parameters()) own.push_back(param.grad());
    return own;
  });
  for (const auto& replica : gradients) {
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(max_difference(replica[i], expected[i]) <= 1e-10 * max_abs(expected[i]));
      CHECK(replica[i].equal(gradients[0][i]));
    }
  }
}

TEST_CASE("a parameter without a gradient is an error that names it, and no replica hangs") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const int careless = GENERATE(0, 1, -1);  // -1: all of them
  const auto errors = refusals(2, [&](int rank, Endpoint& endpoint) {
    NetImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 4096});
    sync.attach(net);
    net.use_second = rank != careless && careless != -1;
    loss_of(net, inputs(4), 4).backward();
    sync.wait();
  });
  for (const auto& error : errors) {
    CHECK_THAT(error, ContainsSubstring("second.weight, second.bias") && ContainsSubstring("4 of 6") &&
                          !ContainsSubstring("first"));
  }
}

TEST_CASE("backward twice, and wait() without a backward pass or within a no_sync(), are refused") {
  const auto backward = [](NetImpl& net) { loss_of(net, inputs(4), 4).backward(); };
  CHECK_THAT(refusal_alone([&](auto& net, auto&) {
               backward(net);
               backward(net);
             }),
             ContainsSubstring("came twice"));
  CHECK(refusal_alone([&](auto& net, auto& sync) {
          const auto no_sync = sync.no_sync();
          backward(net);
          sync.wait();
        }) == "replica 0: wait() was called while a no_sync() is alive");
  CHECK_THAT(refusal_alone([&](auto& net, auto& sync) {
               backward(net);
               sync.wait();
               sync.wait();
             }),
             ContainsSubstring("replica 0: no backward pass outside a no_sync() has reached a parameter"));
}

TEST_CASE("a replica without rows adds zeros, also after zero_grad() has dropped its gradients") {
  const bool dropped = GENERATE(true, false);
  SyncWorld world(2);
  std::vector<WholeGradientsImpl> nets(2);
  world.run([&](int rank, Endpoint& endpoint) {
    auto& net = nets[static_cast<size_t>(rank)];
    GradientSync sync(endpoint);
    sync.attach(net);
    net.backward(rank, 0, kAll);
    sync.wait();
    net.zero_grad(dropped);
    if (rank == 0) net.backward(0, 1, kAll);
    rank == 0 ? sync.wait() : sync.allreduce_all();
  });
  for (const auto& net : nets) {
    for (size_t i = 0; i < WholeGradientsImpl::kParams; ++i) {
      CHECK(net.params()[i].grad().equal(net.gradient(i, 0, 1)));
    }
  }
}

// A graph writes to the memory that the gradients had when it was captured.
TEST_CASE("gradients that a replayed graph has written are summed, also after zero_grad()") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const bool dropped = GENERATE(true, false);
  SyncWorld world(2);
  std::vector<WholeGradientsImpl> nets(2);
  world.run([&](int rank, Endpoint& endpoint) {
    auto& net = nets[static_cast<size_t>(rank)];
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256});
    sync.attach(net);
    net.backward(rank, 0, kAll);
    sync.wait();
    Params of_graph;
    for (const auto& param : net.params()) of_graph.push_back(param.grad());
    net.zero_grad(dropped);
    for (size_t i = 0; i < of_graph.size(); ++i) of_graph[i].copy_(net.gradient(i, rank, 1));
    sync.restore_views();
    sync.allreduce_all();
  });
  for (const auto& net : nets) {
    for (size_t i = 0; i < WholeGradientsImpl::kParams; ++i) {
      CHECK(net.params()[i].grad().equal(net.gradient(i, 0, 1) + net.gradient(i, 1, 1)));
    }
  }
}

TEST_CASE("calls before attach() are refused") {
  SyncWorld world(1);
  GradientSync sync(world.communicator->endpoint(0));
  CHECK_THROWS_WITH(sync.wait(), "wait() was called before attach()");
  CHECK_THROWS_WITH(sync.allreduce_all(), "allreduce_all() was called before attach()");
}

TEST_CASE("a module has one GradientSync, whose destructor removes its hooks") {
  SyncWorld world(1);
  auto& endpoint = world.communicator->endpoint(0);
  NetImpl net, other;
  {
    GradientSync sync(endpoint);
    sync.attach(net);
    CHECK_THROWS_AS(sync.attach(other), UsageError);
    GradientSync second(endpoint);
    CHECK_THROWS_WITH(second.attach(net),
                      ContainsSubstring("first.weight has a post-accumulate hook already"));
  }
  for (const auto& param : net.parameters()) param.mutable_grad().zero_();
  loss_of(net, inputs(4), 4).backward();  // without a GradientSync: plain torch
  loss_of(net, inputs(4), 4).backward();
  const auto once = whole_gradients(4);
  for (size_t i = 0; i < once.size(); ++i) {
    CHECK(max_difference(net.parameters()[i].grad(), 2 * once[i]) <= 1e-12);
  }
  GradientSync again(endpoint);
  CHECK_NOTHROW(again.attach(net));
}

TEST_CASE("the largest bucket is known from the sizes of the parameters") {
  // In float; 1 MB is 262,144 numbers. In the order of registration, each with its gap: 112, 300,000, 16,
  // 1,000,000.
  const std::vector<int64_t> numels{100, 300'000, 7, 1'000'000};
  const auto largest = [&](SyncMode mode, int64_t megabytes, int64_t element_size = 4) {
    return largest_bucket(numels, element_size, {.mode = mode, .bucket_bytes = megabytes << 20});
  };
  CHECK(largest(SyncMode::kParameterwise, 25) == 1'000'000);
  CHECK(largest(SyncMode::kOverlapped, 25) == 1'000'000);  // the first bucket, above its bound alone
  CHECK(largest(SyncMode::kBucketed, 1) == 1'000'000);
  const std::vector<int64_t> alike{300'000, 300'000, 300'000, 300'000, 300'000};  // 1.2 MB of float each
  const auto of_alike = [&](int64_t megabytes, int64_t element_size) {
    return largest_bucket(alike, element_size, {.bucket_bytes = megabytes << 20});
  };
  CHECK(of_alike(25, 4) == 900'000);  // all but the first and the last bucket
  CHECK(of_alike(3, 4) == 600'000);
  CHECK(of_alike(3, 8) == 300'000);
  CHECK(of_alike(1, 4) == 300'000);
  CHECK(largest_bucket({}, 4, {}) == 0);
}

TEST_CASE("the two buckets that have memory at the same time are known from the sizes of the parameters") {
  const std::vector<int64_t> numels{100, 300'000, 7, 1'000'000};  // as above
  const auto largest = [&](SyncMode mode) { return largest_neighbours(numels, 4, {.mode = mode}); };
  CHECK(largest(SyncMode::kOverlapped) == 1'000'000 + 16 + 300'000);
  CHECK(largest(SyncMode::kParameterwise) == 1'000'000 + 16);
  const std::vector<int64_t> alike(5, 300'000);
  CHECK(largest_neighbours(alike, 4, {}) == 1'200'000);  // 300,000, then 900,000
  CHECK(largest_neighbours(std::vector<int64_t>{100}, 4, {}) == 112);
  CHECK(largest_neighbours({}, 4, {}) == 0);
}

TEST_CASE("frozen parameters have no gradient, and wait() does not need one") {
  const auto wrong = by_rank(2, [](int, Endpoint& endpoint) {
    std::string what;
    NetImpl net;
    net.second->weight.requires_grad_(false);
    GradientSync sync(endpoint);
    sync.attach(net);
    loss_of(net, inputs(4), 8).backward();
    sync.wait();
    if (net.second->weight.grad().defined()) what += "a gradient ";
    if (sync.parameters().size() != 5) what += "waited for";
    return what;
  });
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("gradients keep the memory format of their parameters") {
  const auto wrong = by_rank(2, [](int, Endpoint& endpoint) {
    std::string what;
    ResNet18Options options;
    options.width = 8;
    ResNet18Impl net(options);
    GradientSync sync(endpoint);
    sync.attach(net);
    torch::cross_entropy_loss(net.forward(torch::rand({2, 1, 28, 28})), torch::tensor({1, 2})).backward();
    sync.wait();
    for (const auto& item : net.named_parameters()) {
      const auto& grad = item->grad();
      const bool view = grad.is_alias_of(sync.flat_gradients());
      if (!view || grad.strides() != item->strides()) what += item.key() + " ";
    }
    return what;
  });
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("parameters of two dtypes are refused") {
  SyncWorld world(1);
  NetImpl net;
  net.third->to(torch::kFloat32);
  GradientSync sync(world.communicator->endpoint(0));
  CHECK_THROWS_WITH(sync.attach(net),
                    "parameters differ in type or device: first.weight is Double on cpu, "
                    "third.weight is Float on cpu");
}

// In the middle of backward, between the gradients of the third and the first layer, each replica waits until
// a reduction is done. If reductions started only after backward, it would wait until its deadline. In
// bucketed mode they do, and the test checks that none has begun.
TEST_CASE("in overlapped mode reductions run during backward: by the order of events") {
  const bool overlapped = GENERATE(true, false);
  Trace trace;
  SyncWorld world(2, &trace);
  const auto reductions = [&](int rank) {
    const auto events = trace.events();
    return std::count_if(events.begin(), events.end(), [&](const auto& event) {
      return event.rank == rank && event.name.starts_with("allreduce");
    });
  };
  const auto seen = by_rank(world, [&](int rank, Endpoint& endpoint) {
    int64_t count = -1;
    NetImpl net;
    net.on_hidden = [&, rank](torch::Tensor& h) {
      h.register_hook([&, rank](torch::Tensor) {  // before the first layer's gradients
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
        while (overlapped && reductions(rank) == 0 && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::yield();
        }
        count = reductions(rank);
      });
    };
    GradientSync sync(endpoint,
                      {.mode = overlapped ? SyncMode::kOverlapped : SyncMode::kBucketed,
                       .bucket_bytes = 1},  // one bucket per parameter
                      &trace);
    sync.attach(net);
    {
      const Trace::Span span(&trace, "backward", rank);
      loss_of(net, inputs(4), 8).backward();
    }
    sync.wait();
    return count;
  });
  for (const auto count : seen) CHECK((overlapped ? count >= 1 : count == 0));
  // The same from the trace: some reduction ended before its replica's backward did.
  const auto events = trace.events();
  for (int rank = 0; rank < 2; ++rank) {
    const auto backward = std::find_if(events.begin(), events.end(), [&](const auto& event) {
      return event.rank == rank && event.name == "backward";
    });
    REQUIRE(backward != events.end());
    const auto within = std::count_if(events.begin(), events.end(), [&](const auto& event) {
      return event.rank == rank && event.name.starts_with("allreduce") &&
             event.begin_order > backward->begin_order && event.end_order < backward->end_order;
    });
    CHECK((overlapped ? within >= 1 : within == 0));
  }
}
