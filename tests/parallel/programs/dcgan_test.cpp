// A DCGAN: convolutions and batch norms, an Adam for each of two networks.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <lockstep/tests/catch.h>

#include <memory>
#include <utility>
#include <vector>

#include <lockstep/support/shard_sizes.h>
#include <lockstep/tests/parallel/programs/programs.h>
#include <lockstep/tests/parallel/replicas/loops.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace nn = torch::nn;
constexpr int64_t kNoise = 3;
constexpr int64_t kPaintedRows[] = {6, 5, 2, 4};  // rows; fewer than replicas, too

nn::Sequential in_double(nn::Sequential net) {
  draw_weights(*net);
  net->to(torch::kFloat64);
  return net;
}

nn::Sequential new_generator() {  // (n, kNoise, 1, 1) to (n, 1, 8, 8)
  return in_double(nn::Sequential(
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(kNoise, 6, 4).bias(false)), nn::BatchNorm2d(6),
      nn::ReLU(), nn::ConvTranspose2d(nn::ConvTranspose2dOptions(6, 1, 4).stride(2).padding(1)), nn::Tanh()));
}

nn::Sequential new_critic() {  // (n, 1, 8, 8) to (n, 1)
  return in_double(nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 6, 4).stride(2).padding(1).bias(false)),
                                  nn::BatchNorm2d(6),
                                  nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(.2)),
                                  nn::Conv2d(nn::Conv2dOptions(6, 1, 4)), nn::Flatten()));
}

struct Painters {
  nn::Sequential generator = new_generator(), critic = new_critic();
  torch::optim::Adam g_adam{generator->parameters(), torch::optim::AdamOptions(.01).betas({.5, .999})};
  torch::optim::Adam c_adam{critic->parameters(), torch::optim::AdamOptions(.01).betas({.5, .999})};
};

Pair noise_and_images(int64_t rows) {
  return {random_numbers({rows, kNoise, 1, 1}, static_cast<uint64_t>(rows)) - .5,
          random_numbers({rows, 1, 8, 8}, static_cast<uint64_t>(rows + 50)) * 2 - 1};
}

// Sums over rows. A shard without rows has no loss: batch norms need some.
torch::Tensor loss_of_critic(Painters& own, const torch::Tensor& images, const torch::Tensor& fakes) {
  return torch::softplus(-own.critic->forward(images)).sum() +
         torch::softplus(own.critic->forward(fakes.detach())).sum();
}

torch::Tensor loss_of_generator(Painters& own, const torch::Tensor& fakes) {
  return torch::softplus(-own.critic->forward(fakes)).sum();
}

void paint(Painters& own, const Tuple& shard, Step& step) {
  broadcast_buffers(*own.generator, step);  // each replica begins with rank 0's averages
  broadcast_buffers(*own.critic, step);
  const auto& [noise, images] = shard;
  const bool some = noise.size(0) > 0;
  const auto fakes = some ? own.generator->forward(noise) : torch::Tensor();
  own.c_adam.zero_grad();
  if (some) (loss_of_critic(own, images, fakes) / step.rows()).backward();
  step.wait(own.critic);
  own.c_adam.step();
  own.g_adam.zero_grad();
  if (some) {
    const auto paused = step.pause(own.critic);
    (loss_of_generator(own, fakes) / step.rows()).backward();
  }
  step.wait(own.generator);
  own.g_adam.step();
}

// While one lives, forward passes leave the module's buffers as they are.
class SameBuffers {
 public:
  explicit SameBuffers(const nn::Sequential& net) {
    for (const auto& buffer : net->buffers()) before_.emplace_back(buffer, buffer.clone());
  }
  ~SameBuffers() {
    for (const auto& [buffer, before] : before_) buffer.variable_data().copy_(before);  // unseen by autograd
  }
  SameBuffers(const SameBuffers&) = delete;
  SameBuffers& operator=(const SameBuffers&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> before_;
};

// The same in plain torch, one network for all shards: each is normalised by itself, and rank 0's rows alone
// move the averages.
void paint_in_turn(Painters& own, const Pair& batch, int world) {
  const auto& [noise, images] = batch;
  const auto rows = noise.size(0);
  std::vector<torch::Tensor> fakes;
  int64_t begin = 0;
  own.c_adam.zero_grad();
  for (const auto count : shard_sizes(rows, world)) {
    if (count == 0) continue;
    std::vector<std::unique_ptr<SameBuffers>> same;
    if (begin > 0) {
      same.push_back(std::make_unique<SameBuffers>(own.generator));
      same.push_back(std::make_unique<SameBuffers>(own.critic));
    }
    fakes.push_back(own.generator->forward(noise.narrow(0, begin, count)));
    (loss_of_critic(own, images.narrow(0, begin, count), fakes.back()) / rows).backward();
    begin += count;
  }
  own.c_adam.step();
  own.g_adam.zero_grad();
  for (size_t rank = 0; rank < fakes.size(); ++rank) {
    std::unique_ptr<SameBuffers> same;
    if (rank > 0) same = std::make_unique<SameBuffers>(own.critic);
    (loss_of_generator(own, fakes[rank]) / rows).backward();
  }
  own.g_adam.step();
}

torch::Tensor all_weights(const Painters& own) {
  return torch::cat({flat_copy(*own.generator), flat_copy(*own.critic)});
}

}  // namespace

TEST_CASE("a DCGAN with batch norms takes the steps of plain torch, shard by shard, with rank 0's averages") {
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    Painters alone;
    const auto before = all_weights(alone);
    for (const auto rows : kPaintedRows) paint_in_turn(alone, noise_and_images(rows), world_of(layout));
    const auto expected = all_weights(alone);
    CHECK(max_difference(before, expected) > 1e-3);
    for (const auto& found : on_layout(layout, [](ReplicasOptions options) {
           Replicas<Painters> replicas(std::move(options));
           replicas.attach("generator", &Painters::generator);
           replicas.attach("critic", &Painters::critic);
           for (const auto rows : kPaintedRows) replicas.step(noise_and_images(rows), paint);
           replicas.run([](Painters& own, Endpoint& endpoint) {
             broadcast_buffers(*own.generator, endpoint);
             broadcast_buffers(*own.critic, endpoint);
           });
           return torch::cat(
               {weights_of(replicas, &Painters::generator), weights_of(replicas, &Painters::critic)});
         })) {
      CHECK(max_difference(found, expected) < 1e-10);
    }
  }
}
