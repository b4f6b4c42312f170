// The shapes of loops that Replicas is for, each on several layouts against one replica.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <mutex>

#include <lockstep/tests/parallel/replicas/loops.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Returns what run(options) returns, the same on every layout to rounding.
void check_on_layouts(const std::function<torch::Tensor(ReplicasOptions)>& run) {
  const auto expected = run(on_cpus(1));
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    for (const auto& found : on_layout(layout, run)) CHECK(max_difference(found, expected) < 1e-10);
  }
}

struct Adversaries {
  torch::nn::Sequential generator = two_layers(3, 2), critic = two_layers(2, 1);
  torch::optim::Adam g_adam{generator->parameters(), torch::optim::AdamOptions(.01)};
  torch::optim::Adam c_adam{critic->parameters(), torch::optim::AdamOptions(.01)};
};

// With a penalty on the critic's slope: a graph of gradients.
void train_both(Adversaries& own, const Tuple& shard, Step& step) {
  const auto rows = static_cast<double>(step.rows());
  const auto& [noise, points] = shard;
  const auto real = points.detach().requires_grad_();
  const auto fake = own.generator->forward(noise);
  own.c_adam.zero_grad();
  const auto on_real = own.critic->forward(real);
  const auto slope = torch::autograd::grad({on_real.sum()}, {real}, {}, true, true)[0];
  ((own.critic->forward(fake.detach()).sum() - on_real.sum() + slope.square().sum()) / rows).backward();
  step.wait(own.critic);
  own.c_adam.step();
  own.g_adam.zero_grad();
  {
    const auto paused = step.pause(own.critic);
    (-own.critic->forward(fake).sum() / rows).backward();
  }
  step.wait(own.generator);
  own.g_adam.step();
}

struct Recurrent {
  torch::nn::GRUCell cell = (torch::manual_seed(5), torch::nn::GRUCell(3, 4));
  torch::optim::SGD sgd{(cell->to(torch::kFloat64), cell->parameters()), torch::optim::SGDOptions(.1)};
  torch::Tensor hidden;  // of this replica's sequences
};

}  // namespace

TEST_CASE("two modules with an optimizer each, one of them paused while the other's loss runs through it") {
  check_on_layouts([](ReplicasOptions options) {
    Replicas<Adversaries> replicas(std::move(options));
    replicas.attach("generator", &Adversaries::generator);
    replicas.attach("critic", &Adversaries::critic);
    for (const auto rows : {6, 2, 5}) replicas.step(some_rows(rows, rows), train_both);
    return torch::cat(
        {weights_of(replicas, &Adversaries::generator), weights_of(replicas, &Adversaries::critic)});
  });
}

TEST_CASE("a pause ends with every parameter trained as before, and leaves no gradients") {
  Replicas<Adversaries> replicas(on_cpus(2));
  replicas.attach("generator", &Adversaries::generator);
  replicas.attach("critic", &Adversaries::critic);
  std::vector<char> paused(2), after(2);
  replicas.step(some_rows(4), [&](Adversaries& own, const Tuple& shard, Step& step) {
    const auto trains = [&] {
      for (const auto& param : own.critic->parameters()) {
        if (!param.requires_grad()) return false;
      }
      return true;
    };
    const auto i = static_cast<size_t>(step.rank());
    {
      const auto pause = step.pause(own.critic);
      const auto inner = step.pause(own.critic);
      paused[i] = !own.critic->parameters().front().requires_grad();
      own.critic->forward(own.generator->forward(std::get<0>(shard))).sum().backward();
    }
    step.wait(own.generator);
    after[i] = trains() && own.critic->parameters().front().grad().eq(0).all().item<bool>();
  });
  CHECK(paused == std::vector<char>{1, 1});
  CHECK(after == std::vector<char>{1, 1});
}

TEST_CASE("a gradient penalty keeps no graph alive after the step") {
  Replicas<Adversaries> replicas(on_cpus(2));
  replicas.attach("generator", &Adversaries::generator);
  replicas.attach("critic", &Adversaries::critic);
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> held;
  for (int repeat = 0; repeat < 3; ++repeat) {
    replicas.step(some_rows(4), [&](Adversaries& own, const Tuple& shard, Step& step) {
      const auto real = std::get<1>(shard).clone().requires_grad_();
      const auto slope = torch::autograd::grad({own.critic->forward(real).sum()}, {real}, {}, true, true)[0];
      {
        const std::lock_guard lock(mutex);
        held.emplace_back(real.getIntrusivePtr());
        held.emplace_back(slope.getIntrusivePtr());
      }
      own.c_adam.zero_grad();
      (own.critic->forward(real).sum() + slope.square().sum()).backward();
      step.wait(own.critic);
      own.c_adam.step();
    });
  }
  CHECK(held.size() == 12);
  for (const auto& tensor : held) CHECK(tensor.expired());
}

TEST_CASE("micro-batches add up, whose sum starts with the last one") {
  torch::Tensor whole;
  for (const int parts : {1, 2, 3}) {
    check_on_layouts([&](ReplicasOptions options) {
      Replicas<Learner> replicas(std::move(options));
      replicas.attach(&Learner::net);
      for (const auto rows : {9, 2}) {
        replicas.step(some_rows(rows, rows), [parts](Learner& own, const Tuple& shard, Step& step) {
          const auto& [X, y] = shard;
          const auto loss = [&, &own_X = X, &own_y = y](int64_t part) {
            const auto i = static_cast<size_t>(part);
            return (own.net->forward(own_X.tensor_split(parts)[i]) - own_y.tensor_split(parts)[i])
                       .square()
                       .sum() /
                   step.rows();
          };
          own.sgd.zero_grad();
          {
            const auto no_sync = step.sync(own.net).no_sync();
            for (int64_t part = 0; part + 1 < parts; ++part) loss(part).backward();
          }
          loss(parts - 1).backward();
          step.wait(own.net);
          own.sgd.step();
        });
      }
      const auto weights = weights_of(replicas, &Learner::net);
      if (!whole.defined()) whole = weights;
      if (max_difference(weights, whole) > 1e-10) throw std::logic_error("other weights than without parts");
      return weights;
    });
  }
}

TEST_CASE("clipping by the global norm of two modules is that of the whole batch") {
  check_on_layouts([](ReplicasOptions options) {
    Replicas<Adversaries> replicas(std::move(options));
    replicas.attach("generator", &Adversaries::generator);
    replicas.attach("critic", &Adversaries::critic);
    std::vector<double> norms(8);
    replicas.step(some_rows(5), [&](Adversaries& own, const Tuple& shard, Step& step) {
      (own.generator->forward(std::get<0>(shard)).square().sum() / step.rows()).backward();
      step.wait(own.generator);
      (own.critic->forward(std::get<1>(shard)).square().sum() / step.rows()).backward();
      step.wait(own.critic);
      auto all = own.generator->parameters();
      for (const auto& param : own.critic->parameters()) all.push_back(param);
      norms[static_cast<size_t>(step.rank())] = torch::nn::utils::clip_grad_norm_(all, .01);
      own.g_adam.step();
      own.c_adam.step();
    });
    const auto norm = norms[static_cast<size_t>(replicas.first_rank())];
    return torch::cat({weights_of(replicas, &Adversaries::generator),
                       weights_of(replicas, &Adversaries::critic), torch::full({1}, norm, torch::kFloat64)});
  });
}

TEST_CASE("a recurrent state stays with the replica of its sequences") {
  check_on_layouts([](ReplicasOptions options) {
    Replicas<Recurrent> replicas(std::move(options));
    replicas.attach(&Recurrent::cell);
    for (int64_t chunk = 0; chunk < 3; ++chunk) {  // the same five sequences go on
      replicas.step(some_rows(5, 5 * chunk).first, [](Recurrent& own, const auto& X, Step& step) {
        if (!own.hidden.defined()) own.hidden = torch::zeros({X.size(0), 4}, torch::kFloat64);
        own.sgd.zero_grad();
        const auto hidden = own.cell(X, own.hidden);
        (hidden.square().sum() / step.rows()).backward();
        step.wait(own.cell);
        own.sgd.step();
        own.hidden = hidden.detach();
      });
    }
    return weights_of(replicas, &Recurrent::cell);
  });
}
