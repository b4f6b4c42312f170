// GradientSync and gradients that are not what backward leaves as a rule: with a graph of their own, sparse,
// twice, dropped before wait().
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

// A graph holds its hooks, and these a token. In plain torch the graph lives until the gradients are dropped.
TEST_CASE("gradients of backward(create_graph) are summed without their graphs, which end with the step") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const bool to_none = GENERATE(true, false);
  const bool micro_batches = GENERATE(false, true);
  const auto wrong = by_rank(2, [&](int rank, Endpoint& endpoint) {
    std::string what;
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256});
    sync.attach(net);
    for (int step = 0; step < 3; ++step) {
      net.zero_grad(to_none);
      std::weak_ptr<int> graph;
      const auto backward = [&] {
        const auto token = std::make_shared<int>();
        graph = token;
        torch::Tensor loss;
        for (const auto& param : net.params()) {
          auto square = param * param * static_cast<float>(rank + 1);
          square.register_hook([token](const torch::Tensor& gradient) { return gradient; });
          loss = loss.defined() ? loss + square.sum() : square.sum();
        }
        loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
      };
      if (micro_batches) {
        const auto no_sync = sync.no_sync();
        backward();
      }
      backward();
      sync.wait();
      if (!graph.expired()) what += "a graph is alive; ";
      if (sync.flat_gradients().requires_grad()) what += "the flat gradients have a graph; ";
      const float expected = micro_batches ? 12 : 6;  // 2 x (1 + 2) x parameters of 1, each micro-batch
      for (const auto& param : net.params()) {
        const auto& grad = param.grad();
        if (grad.requires_grad()) what += "a gradient has a graph; ";
        if (!grad.eq(expected).all().item<bool>()) what += "a wrong sum; ";
      }
    }
    return what;
  });
  CHECK(wrong == std::vector<std::string>(2));
}

// No gradient of the step's last backward pass comes to the hooks: wait() and allreduce_all() find the
// others.
TEST_CASE("gradients of backward(create_graph) within a no_sync() lose their graphs, too") {
  const bool replayed = GENERATE(false, true);
  const auto wrong = by_rank(2, [&](int rank, Endpoint& endpoint) {
    std::string what;
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.unused = UnusedParameters::kZero});
    sync.attach(net);
    net.zero_grad();
    {
      const auto no_sync = sync.no_sync();
      const auto loss = net.params()[0].square().sum() * (rank + 1);
      loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    }
    replayed ? sync.allreduce_all() : sync.wait();
    if (sync.flat_gradients().requires_grad()) what += "the flat gradients have a graph; ";
    for (size_t i = 0; i < WholeGradientsImpl::kParams; ++i) {
      const auto& grad = net.params()[i].grad();
      if (grad.requires_grad()) what += "a gradient has a graph; ";
      if (!grad.eq(i == 0 ? 6 : 0).all().item<bool>()) what += "a wrong sum; ";  // 2 x (1 + 2)
    }
    return what;
  });
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("a hook is called without autograd, in backward(create_graph), too") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const bool create_graph = GENERATE(false, true);
  SyncWorld world(2);
  std::vector<int> with_autograd(2);
  const BucketHook hook = [&](Endpoint& endpoint, const GradientBucket& bucket) {
    with_autograd[static_cast<size_t>(endpoint.rank())] += torch::GradMode::is_enabled() ? 1 : 0;
    return endpoint.allreduce_gradients(bucket.gradients);
  };
  world.run([&](int, Endpoint& endpoint) {
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256, .hook = hook});
    sync.attach(net);
    auto loss = torch::zeros({});
    for (const auto& param : net.params()) loss = loss + param.square().sum();
    loss.backward({}, /*retain_graph=*/create_graph, create_graph);
    sync.wait();
  });
  CHECK(with_autograd == std::vector<int>(2));
}

TEST_CASE("a sparse gradient is refused by the parameter's name") {
  const auto errors = refusals(2, [](int rank, Endpoint& endpoint) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 3).sparse(true));
    GradientSync sync(endpoint);
    sync.attach(*table);
    table->zero_grad();
    table(torch::tensor({rank, 2})).sum().backward();
    sync.wait();
  });
  for (const auto& error : errors) CHECK_THAT(error, ContainsSubstring("the gradient of weight is sparse"));
}

TEST_CASE("a gradient that comes twice is named with its module's type, its place and its size") {
  const auto errors = refusals(2, [](int, Endpoint& endpoint) {
    torch::nn::Linear generator(2, 3), critic(3, 1);  // a GAN
    GradientSync generators(endpoint), critics(endpoint);
    generators.attach(*generator);
    critics.attach(*critic);
    const auto fake = generator(torch::ones({1, 2}));
    critic(fake).sum().backward();
    critics.wait();
    critic(generator(torch::ones({1, 2}))).sum().backward();
  });
  for (const auto& error : errors) {
    CHECK_THAT(error, ContainsSubstring("came twice before wait()"));
    CHECK_THAT(error, ContainsSubstring("bias [3], parameter 2 of 2 of torch::nn::LinearImpl") ||
                          ContainsSubstring("weight [3, 2], parameter 1 of 2 of torch::nn::LinearImpl"));
  }
}

TEST_CASE("a gradient that is dropped or replaced between backward and wait() is refused by name") {
  const auto mode = GENERATE(from_range(kModes));
  const std::function<void(torch::nn::Linear&)> changes[] = {
      [](auto& net) { net->zero_grad(); },
      [](auto& net) { net->weight.mutable_grad() = torch::zeros_like(net->weight); }};
  for (const auto& change : changes) {
    const auto errors = refusals(2, [&](int, Endpoint& endpoint) {
      torch::nn::Linear net(2, 1);
      GradientSync sync(endpoint, {.mode = mode});
      sync.attach(*net);
      net(torch::ones({1, 2})).sum().backward();
      change(net);
      sync.wait();
    });
    for (const auto& error : errors) {
      CHECK_THAT(error, ContainsSubstring("weight was dropped or replaced between backward and wait()"));
    }
  }
}
