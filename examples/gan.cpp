// A GAN on any number of replicas: two modules, two optimizers, two backward passes per step, and a gradient
// penalty (R1 of Mescheder, Geiger and Nowozin, 2018). It learns to draw from the normal distribution N(3,
// .5).
//   gan [DEVICES]                       default: cpux2
//   lockstep launch -n 2 -- ./gan cpu   in two processes
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/replicas.h>

constexpr int64_t kNoise = 2, kHidden = 32, kBatch = 64;

torch::nn::Sequential network(int64_t inputs) {
  return torch::nn::Sequential(torch::nn::Linear(inputs, kHidden), torch::nn::Tanh(),
                               torch::nn::Linear(kHidden, 1));
}

torch::optim::AdamOptions adam_options() { return torch::optim::AdamOptions(.005).betas({.5, .9}); }

// One per replica.
struct Gan {
  torch::nn::Sequential generator = network(kNoise), discriminator = network(1);
  torch::optim::Adam g_adam{generator->parameters(), adam_options()};
  torch::optim::Adam d_adam{discriminator->parameters(), adam_options()};
};

// The losses are sums over this replica's rows, divided by the rows of all.
void train(Gan& own, const std::tuple<torch::Tensor, torch::Tensor>& shard, lockstep::Step& step) {
  const auto& [points, noise] = shard;
  const auto rows = static_cast<double>(step.rows());
  const auto real = points.detach().requires_grad_();
  const auto fake = own.generator->forward(noise);
  own.d_adam.zero_grad();
  const auto on_real = own.discriminator->forward(real), on_fake = own.discriminator->forward(fake.detach());
  const auto slope = torch::autograd::grad({on_real.sum()}, {real}, {}, /*retain_graph=*/true,
                                           /*create_graph=*/true)[0];
  const auto d_loss =
      torch::softplus(-on_real).sum() + torch::softplus(on_fake).sum() + 5 * slope.square().sum();
  (d_loss / rows).backward();
  step.wait(own.discriminator);  // its gradients are now the sums over all replicas
  own.d_adam.step();

  own.g_adam.zero_grad();
  {
    const auto paused = step.pause(own.discriminator);  // the loss only runs through it
    (torch::softplus(-own.discriminator->forward(fake)).sum() / rows).backward();
  }
  step.wait(own.generator);
  own.g_adam.step();
  step.add("discriminator", d_loss);
}

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());  // the same digits for any split
  torch::manual_seed(0);
  lockstep::Replicas<Gan> replicas({.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2"),
                                    .process_group = lockstep::join_process_group(lockstep::find_world())});
  replicas.attach("generator", &Gan::generator);
  replicas.attach("discriminator", &Gan::discriminator);
  for (int step = 0; step < 300; ++step) {  // every process draws the whole batch, all alike
    replicas.step(std::pair(3 + .5 * torch::randn({kBatch, 1}), torch::randn({kBatch, kNoise})), train);
  }
  const double loss = replicas.take_sums().mean("discriminator");
  const auto drawn =
      replicas.evaluate(torch::randn({1000, kNoise}), [](Gan& own, const auto& noise, auto& step) {
        const auto points = own.generator->forward(noise);
        step.add("points", points);
        step.add("squares", points.square());
      });
  const double mean = drawn.mean("points"), deviation = std::sqrt(drawn.mean("squares") - mean * mean);
  if (replicas.is_first()) std::printf("loss %.6f, mean %.6f, deviation %.6f\n", loss, mean, deviation);
  return std::abs(mean - 3) < .4 && deviation > .1 && deviation < 1 ? 0 : 1;
} catch (const std::exception& error) {  // a lockstep::Error also has an exit code: see own_loop.cpp
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
