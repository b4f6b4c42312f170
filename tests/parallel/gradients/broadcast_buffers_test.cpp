// broadcast_buffers(): rank 0's running averages for all replicas.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>
#include <algorithm>

#include <lockstep/tests/parallel/gradients/sync_world.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A batch norm and buffers: whole numbers, every second element of a tensor, and an expanded one.
class BufferedImpl : public torch::nn::Module {
 public:
  BufferedImpl()
      : linear(register_module("linear", torch::nn::Linear(4, 5))),
        norm(register_module("norm", torch::nn::BatchNorm1d(5))),
        counts(register_buffer("counts", torch::zeros({3}, torch::kInt64))),
        sparse(register_buffer("sparse", torch::zeros({3, 2}).select(1, 0))),
        expanded(register_buffer("expanded", torch::zeros({3, 1, 2}).expand({3, 4, 2}))) {
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(torch::arange(20).remainder(7).view({5, 4}) / 7);
    linear->bias.zero_();
  }
  torch::Tensor forward(torch::Tensor X) { return norm(linear(X)); }

  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  torch::Tensor counts, sparse, expanded;
};

torch::Tensor rows_of(int rank, int step) {  // (6, 4), others for each rank and step
  return (torch::arange(24, torch::kFloat).view({6, 4}) * 5 + 11 * rank + 17 * step).remainder(23) / 23;
}

void fill_buffers(BufferedImpl& net, int rank) {
  const torch::NoGradGuard no_grad;
  net.norm->running_mean.fill_(1.5 + rank);
  net.norm->running_var.fill_(.25 + rank);
  net.norm->num_batches_tracked.fill_(7 + rank);
  net.counts.copy_(torch::arange(3) + 100 * rank);
  net.sparse.copy_(torch::arange(3) - 10 * rank);
  net.expanded.select(1, 0).copy_(torch::arange(6).view({3, 2}) + 50 * rank);
}

std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

bool equal_tensors(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.equal(y); });
}

}  // namespace

TEST_CASE("broadcast_buffers gives all replicas one replica's buffers, of any dtype, and no parameters") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const int root = GENERATE_COPY(filter([=](int rank) { return rank < world_size; }, values({0, 1, 3})));
  const auto wrong = by_rank(world_size, [&](int rank, Endpoint& endpoint) {
    std::string what;
    BufferedImpl net, expected;
    fill_buffers(net, rank);
    fill_buffers(expected, root);
    {
      const torch::NoGradGuard no_grad;
      net.linear->bias.fill_(rank);
    }
    const auto parameters = copies_of(net.parameters());
    if (equal_tensors(net.buffers(), expected.buffers()) != (rank == root)) what += "too early; ";
    broadcast_buffers(net, endpoint, root);
    if (!equal_tensors(net.buffers(), expected.buffers())) what += "buffers; ";
    if (!equal_tensors(net.parameters(), parameters)) what += "parameters";
    return what;
  });
  CHECK(wrong == std::vector<std::string>(static_cast<size_t>(world_size)));
}

// As DistributedDataParallel does with forward_sync_buffers. The expected averages are those of rank 0's rows
// alone, by plain torch.
TEST_CASE("broadcast_buffers before each forward pass gives all replicas the averages of rank 0's rows") {
  constexpr int kWorld = 3;
  const bool broadcasts = GENERATE(true, false);  // false: each replica keeps its own
  BufferedImpl alone;
  SyncWorld(1).run([&](int, Endpoint&) {  // as many threads as a replica has: bits depend on them
    for (int step = 0; step < 4; ++step) alone.forward(rows_of(0, step));
  });
  const auto as_alone = by_rank(kWorld, [&](int rank, Endpoint& endpoint) {
    BufferedImpl net;
    GradientSync sync(endpoint);
    sync.attach(net);
    for (int step = 0; step < 4; ++step) {
      if (broadcasts) broadcast_buffers(net, endpoint);
      net.zero_grad();
      net.forward(rows_of(rank, step)).square().sum().backward();
      sync.wait();
    }
    if (broadcasts) broadcast_buffers(net, endpoint);
    return int{equal_tensors(net.buffers(), alone.buffers())};
  });
  CHECK(as_alone == (broadcasts ? std::vector<int>{1, 1, 1} : std::vector<int>{1, 0, 0}));
}
