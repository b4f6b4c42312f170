// GradientSync::drop_gradients(): autograd hands its tensors over.
#include <torch/nn/modules/embedding.h>

#include <lockstep/tests/catch.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/tests/parallel/gradients/sync_world.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Returns what is wrong with the gradients of a step: each should be a view of the flat buffer, and the sum
// over the ranks that have reached its parameter.
std::string wrong_sums(GradientSync& sync, const WholeGradientsImpl& net, int world, int step,
                       const std::function<bool(int rank, size_t param)>& reached) {
  std::string what;
  for (size_t i = 0; i < WholeGradientsImpl::kParams; ++i) {
    auto expected = torch::zeros_like(net.params()[i]);
    for (int rank = 0; rank < world; ++rank) {
      if (reached(rank, i)) expected = expected + net.gradient(i, rank, step);
    }
    const auto& grad = net.params()[i].grad();
    if (!grad.defined() || !grad.is_alias_of(sync.flat_gradients())) {
      what += "no view of " + sync.names()[i] + "; ";
    } else if (!grad.equal(expected)) {
      what += "a wrong sum of " + sync.names()[i] + "; ";
    }
  }
  return what;
}

}  // namespace

TEST_CASE("gradients that autograd hands over have the sums of those it adds, also a mixture of both") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const int world = GENERATE(1, 3);
  const bool buckets = GENERATE(true, false);
  const auto wrong = by_rank(world, [&](int rank, Endpoint& endpoint) {
    std::string what;
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = buckets ? 256 : 25 << 20});
    sync.attach(net);
    for (int step = 0; step < 6; ++step) {
      const auto all = [](size_t) { return true; };
      if (step == 2) {  // added, as without drop_gradients()
        net.zero_grad(/*set_to_none=*/false);
      } else if (step == 3) {  // dropped, and then not
        sync.drop_gradients();
        sync.restore_views();
        sync.flat_gradients().zero_();
      } else {
        sync.drop_gradients();
        for (const auto& param : net.params()) {
          if (param.grad().defined()) what += "a gradient before backward; ";
        }
      }
      if (step == 5) {  // as a captured step, whose hooks run nothing
        {
          const auto no_sync = sync.no_sync();
          net.backward(rank, step, all);
          sync.take_gradients();
        }
        sync.allreduce_all();
      } else {
        net.backward(rank, step, all);
        sync.wait();
      }
      what += wrong_sums(sync, net, world, step, [](int, size_t) { return true; });
    }
    if (sync.holds_unsummed()) what += "unsummed gradients; ";
    return what;
  });
  CHECK(wrong == std::vector<std::string>(static_cast<size_t>(world)));
}

TEST_CASE("with dropped gradients a parameter that backward does not reach is named, or counts as zeros") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const auto reached = [](int rank, size_t param) { return param != 2 && (rank == 0 || param != 4); };
  const auto run = [&](int rank, Endpoint& endpoint, UnusedParameters unused) {
    WholeGradientsImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 256, .unused = unused});
    sync.attach(net);
    std::string what;
    for (int step = 0; step < 2; ++step) {
      sync.flat_gradients().fill_(7);  // what is left there does not matter
      sync.drop_gradients();
      net.backward(rank, step, [&](size_t param) { return reached(rank, param); });
      sync.wait();
      what += wrong_sums(sync, net, 2, step, reached);
    }
    return what;
  };
  const auto zeros =
      by_rank(2, [&](int rank, Endpoint& endpoint) { return run(rank, endpoint, UnusedParameters::kZero); });
  CHECK(zeros == std::vector<std::string>(2));
  const auto refused =
      refusals(1, [&](int, Endpoint& endpoint) { run(1, endpoint, UnusedParameters::kError); });
  CHECK_THAT(refused[0], ContainsSubstring("backward reached 4 of 6 parameters; no gradient for p2, p4"));
}

TEST_CASE("a sparse gradient that is handed over is added to zeros") {
  const bool captured = GENERATE(false, true);
  const auto wrong = by_rank(2, [&](int rank, Endpoint& endpoint) {
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(4, 3).sparse(true));
    GradientSync sync(endpoint);
    sync.attach(*words);
    sync.flat_gradients().fill_(7);
    sync.drop_gradients();
    const auto rows = torch::tensor({1, 1, 2 + rank}, torch::kInt64);
    {
      std::optional<GradientSync::NoSync> no_sync;
      if (captured) no_sync.emplace(sync);
      words->forward(rows).sum().backward();
      if (captured) sync.take_gradients();
    }
    captured ? sync.allreduce_all() : sync.wait();
    const auto expected = torch::tensor({0., 4., 1., 1.}).view({4, 1}).expand({4, 3});
    const auto& grad = words->weight.grad();
    return std::string(grad.is_alias_of(sync.flat_gradients()) && grad.equal(expected) ? "" : "wrong");
  });
  CHECK(wrong == std::vector<std::string>(2));
}
