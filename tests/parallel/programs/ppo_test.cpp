// Proximal policy optimisation (Schulman et al., 2017): several epochs of minibatches over one rollout, whose
// advantages are normalised over the rollouts of all replicas.
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <memory>
#include <vector>

#include <lockstep/parallel/over_replicas.h>
#include <lockstep/tests/parallel/programs/programs.h>
#include <lockstep/tests/parallel/replicas/loops.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kMoves = 6, kMinibatches = 2, kRounds = 3;
constexpr int64_t kUpdates[] = {7, 2, 6};  // episodes; fewer than replicas, too

struct ActorCritic : torch::nn::Module {
  torch::nn::Linear body = register_module("body", torch::nn::Linear(3, 8));
  torch::nn::Linear policy = register_module("policy", torch::nn::Linear(8, 2));
  torch::nn::Linear value = register_module("value", torch::nn::Linear(8, 1));
};

struct Player {
  std::shared_ptr<ActorCritic> net = drawn_net<ActorCritic>();
  torch::optim::Adam adam{net->parameters(), torch::optim::AdamOptions(.02)};
};

struct Judgement {
  torch::Tensor log_p, value;  // (episodes, moves, 2), (episodes, moves)
};

Judgement judge(ActorCritic& net, const torch::Tensor& states) {
  const auto hidden = torch::tanh(net.body(states));
  return {torch::log_softmax(net.policy(hidden), -1), net.value(hidden).squeeze(-1)};
}

struct Rollout {
  torch::Tensor states;                                            // (episodes, moves, 3)
  torch::Tensor moves, log_p = {}, returns = {}, advantages = {};  // (episodes, moves)
};

torch::Tensor of_moves(const torch::Tensor& log_p, const torch::Tensor& moves) {
  return log_p.gather(-1, moves.unsqueeze(-1)).squeeze(-1);
}

// Numbers of episodes, (episodes, moves + 3), which depend on the update and the episode alone.
torch::Tensor draws_of(int64_t update, RowRange episodes) {
  const auto draws = torch::empty({episodes.rows, kMoves + 3}, torch::kFloat64);
  for (int64_t i = 0; i < episodes.rows; ++i) {
    draws[i].uniform_(0, 1, replica_generator(1, update, static_cast<int>(episodes.begin + i)));
  }
  return draws;
}

// A point that a move pulls to one side or the other; the reward is for staying near the origin.
Rollout play(ActorCritic& net, int64_t update, RowRange episodes) {
  const torch::NoGradGuard no_grad;
  const auto draws = draws_of(update, episodes);
  auto state = draws.narrow(1, kMoves, 3) * 2 - 1;
  std::vector<torch::Tensor> states, moves, rewards;
  for (int64_t move = 0; move < kMoves; ++move) {
    const auto p = judge(net, state).log_p.exp().select(1, 1);
    const auto right = (draws.select(1, move) < p).to(torch::kInt64);
    states.push_back(state);
    moves.push_back(right);
    state = torch::tanh(state.roll(1, 1) + .3 * (right * 2 - 1).unsqueeze(1));
    rewards.push_back(-state.square().sum(1));
  }
  Rollout rollout{.states = torch::stack(states, 1), .moves = torch::stack(moves, 1)};
  const auto [log_p, value] = judge(net, rollout.states);
  rollout.log_p = of_moves(log_p, rollout.moves);
  rollout.advantages = torch::zeros_like(value);
  auto later = torch::zeros({episodes.rows}, torch::kFloat64), next_value = later;
  for (int64_t move = kMoves - 1; move >= 0; --move) {  // generalised advantages, gamma .9, lambda .8
    const auto now = value.select(1, move);
    later = rewards[static_cast<size_t>(move)] + .9 * next_value - now + .9 * .8 * later;
    rollout.advantages.select(1, move).copy_(later);
    next_value = now;
  }
  rollout.returns = rollout.advantages + value;
  return rollout;
}

// The sum over the moves of some episodes.
torch::Tensor ppo_loss(ActorCritic& net, const Rollout& rollout, const torch::Tensor& episodes) {
  const auto of = [&](const torch::Tensor& all) { return all.index_select(0, episodes); };
  const auto [log_p, value] = judge(net, of(rollout.states));
  const auto ratio = (of_moves(log_p, of(rollout.moves)) - of(rollout.log_p)).exp();
  const auto advantage = of(rollout.advantages);
  const auto gain = torch::minimum(ratio * advantage, ratio.clamp(.8, 1.2) * advantage);
  const auto entropy = -(log_p.exp() * log_p).sum(-1);
  return (.5 * (value - of(rollout.returns)).square() - gain - .01 * entropy).sum();
}

// sum(number): over all replicas. wait(): for the gradients.
template <class Sum, class Wait>
void improve(Player& own, int64_t update, int64_t all, RowRange episodes, const Sum& sum, const Wait& wait) {
  auto rollout = play(*own.net, update, episodes);
  const auto count = static_cast<double>(all * kMoves);
  const double mean = sum(rollout.advantages.sum().item<double>()) / count;
  const double variance = sum((rollout.advantages - mean).square().sum().item<double>()) / count;
  rollout.advantages = (rollout.advantages - mean) / (std::sqrt(variance) + 1e-8);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int64_t part = 0; part < kMinibatches; ++part) {  // every second episode, whoever has played it
      std::vector<int64_t> chosen;
      for (int64_t i = 0; i < episodes.rows; ++i) {
        if ((episodes.begin + i) % kMinibatches == part) chosen.push_back(i);
      }
      const auto chosen_by_all = (all - part + kMinibatches - 1) / kMinibatches;
      own.adam.zero_grad();
      (ppo_loss(*own.net, rollout, torch::tensor(chosen, torch::kInt64)) / (chosen_by_all * kMoves))
          .backward();
      wait();
      torch::nn::utils::clip_grad_norm_(own.net->parameters(), .5);
      own.adam.step();
    }
  }
}

}  // namespace

TEST_CASE("PPO with several epochs over one rollout takes the steps of plain torch, on any layout") {
  Player alone;
  const auto before = flat_copy(*alone.net);
  int64_t update = 0;
  for (const auto episodes : kUpdates) {
    improve(
        alone, update++, episodes, {.begin = 0, .rows = episodes}, [](double own) { return own; }, [] {});
  }
  const auto expected = flat_copy(*alone.net);
  CHECK(max_difference(before, expected) > .05);
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    for (const auto& found : on_layout(layout, [](ReplicasOptions options) {
           Replicas<Player> replicas(std::move(options));
           replicas.attach(&Player::net);
           for (const auto episodes : kUpdates) {
             replicas.step(episodes, [](Player& own, RowRange played, Step& step) {
               improve(
                   own, step.number(), step.rows(), played,
                   [&](double number) { return sum_over_replicas(number, step); },
                   [&] { step.wait(own.net); });
             });
           }
           return weights_of(replicas, &Player::net);
         })) {
      CHECK(max_difference(found, expected) < 1e-10);
    }
  }
}
