// REINFORCE (Williams, 1992) on any number of replicas: each plays its share of the episodes of an update.
// An episode draws numbers that depend on its own number alone, so that any number of replicas plays the same
// ones.
//   policy_gradient [DEVICES]                       default: cpux2
//   lockstep launch -n 2 -- ./policy_gradient cpu   in two processes
#include <torch/torch.h>

#include <cstdio>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/over_replicas.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replicas.h>

// The environment: a walk along nine cells, from the middle. The right end pays 1, each move costs .05, and
// either end is the end.
constexpr int64_t kCells = 9, kMoves = 24, kEpisodes = 32;

// One per replica. The policy gives the logits of a move to the left and to the right.
struct Agent {
  torch::nn::Linear policy{kCells, 2};
  torch::optim::Adam adam{policy->parameters(), torch::optim::AdamOptions(.1)};
};

// Numbers for all moves of some episodes of an update, (episodes, moves).
torch::Tensor draw(int64_t update, lockstep::RowRange episodes) {
  auto draws = torch::empty({episodes.rows, kMoves});
  for (int64_t i = 0; i < episodes.rows; ++i) {
    draws[i].uniform_(0, 1,
                      lockstep::replica_generator(/*seed=*/1, update, static_cast<int>(episodes.begin + i)));
  }
  return draws;
}

// An update by the episodes of this replica. There may be none.
void train(Agent& own, lockstep::RowRange episodes, lockstep::Step& step) {
  const auto draws = draw(step.number(), episodes).to(step.device());
  auto cell = torch::full({episodes.rows}, kCells / 2, draws.options().dtype(torch::kInt64));
  auto going = torch::ones_like(cell, torch::kBool);
  auto gain = torch::zeros({episodes.rows}, draws.options()), log_p = torch::zeros_like(gain);
  for (int64_t move = 0; move < kMoves; ++move) {
    const auto logs = torch::log_softmax(own.policy(torch::one_hot(cell, kCells).to(draws.dtype())), 1);
    const auto right = (draws.select(1, move) < logs.select(1, 1).detach().exp()).to(torch::kInt64);
    log_p = log_p + logs.gather(1, right.unsqueeze(1)).squeeze(1) * going;
    cell = cell + (right * 2 - 1) * going;
    gain = gain + ((cell == kCells - 1).to(draws.dtype()) - .05) * going;
    going = going & (cell > 0) & (cell < kCells - 1);
  }
  const double baseline = lockstep::sum_over_replicas(gain.sum().item<double>(), step) / step.rows();
  own.adam.zero_grad();
  (-(log_p * (gain - baseline)).sum() / step.rows()).backward();
  step.wait(own.policy);
  own.adam.step();
  step.add("gain", gain);
}

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());  // the same digits for any split
  torch::manual_seed(0);
  lockstep::Replicas<Agent> replicas({.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2"),
                                      .process_group = lockstep::join_process_group(lockstep::find_world())});
  replicas.attach(&Agent::policy);
  double first = 0, last = 0;  // mean gains of ten updates
  for (int update = 0; update < 60; ++update) {
    replicas.step(kEpisodes, train);
    if (update % 10 != 9) continue;
    last = replicas.take_sums().mean("gain");
    if (update == 9) first = last;
    if (replicas.is_first()) std::printf("update %d: gain %.7f\n", update + 1, last);
  }
  return last > .7 && last > first ? 0 : 1;
} catch (const std::exception& error) {  // a lockstep::Error also has an exit code: see own_loop.cpp
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
