// A loop that loads its own rows: each replica shifts its images at random. A shift depends on the epoch and
// the row alone, so that any number of replicas trains on the same images.
//   augmentation [DEVICES [EPOCHS [FOLDER]]]     default: cpux2 12; a later run goes on from FOLDER
//   lockstep launch -n 2 -- ./augmentation cpu   in two processes
#include <torch/torch.h>

#include <cstdio>
#include <span>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replicas.h>

constexpr int64_t kRows = 256, kBatch = 32, kSteps = kRows / kBatch, kSide = 8, kPixels = 64;

// Images with a line across (0) or down (1): in one place for training, else anywhere.
struct Images {
  Images(int64_t rows, bool anywhere)
      : X(torch::rand({rows, 1, kSide, kSide}) / 2), y(torch::arange(rows) % 2) {
    for (int64_t i = 0; i < rows; ++i) X[i][0].select(i % 2, anywhere ? i / 2 % kSide : 3).fill_(1);
  }
  torch::Tensor X, y;
};

// Images, each shifted at random, and classes. (Replicas draws its steps' numbers with seed 0.)
auto load(const Images& data, std::span<const int64_t> rows, int64_t epoch) {
  const auto index = torch::tensor(at::IntArrayRef(rows.data(), rows.size()), torch::kInt64);
  const auto X = data.X.index_select(0, index);
  for (int64_t i = 0; i < X.size(0); ++i) {
    const auto generator = lockstep::replica_generator(/*seed=*/1, epoch, index[i].item<int>());
    const auto by = torch::randint(0, kSide, {2}, generator, torch::kInt64);
    X[i].copy_(X[i].roll({by[0].item<int64_t>(), by[1].item<int64_t>()}, {1, 2}));
  }
  return std::pair(X, data.y.index_select(0, index));
}

// One per replica.
struct Learner {
  torch::nn::Sequential net{torch::nn::Flatten(), torch::nn::Linear(kPixels, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 2)};
  torch::optim::Adam adam{net->parameters(), torch::optim::AdamOptions(.01)};
};

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());  // the same digits for any split
  torch::manual_seed(0);
  const Images data(kRows, /*anywhere=*/false), test(128, /*anywhere=*/true);
  lockstep::Replicas<Learner> replicas(
      {.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2"),
       .process_group = lockstep::join_process_group(lockstep::find_world())});
  replicas.attach(&Learner::net);
  replicas.keep(&Learner::adam);
  const std::filesystem::path folder = argc > 3 ? argv[3] : "";
  const bool first = replicas.is_first();  // one process prints, saves, and looks for a checkpoint
  auto state = replicas.state();           // complete in that process, whose state load() gives to all
  if (first && exists(folder)) state = lockstep::read_train_state(lockstep::read_checkpoint(folder));
  replicas.load(state);
  for (auto epoch = replicas.steps_taken() / kSteps; epoch < (argc > 2 ? std::atoi(argv[2]) : 12); ++epoch) {
    const auto order = lockstep::batch_order(/*seed=*/0, epoch, kRows);
    for (size_t begin = 0; begin < order.size(); begin += kBatch) {  // a replica loads its own rows alone
      replicas.step(std::span(order).subspan(begin, kBatch), [&](Learner& own, auto rows, auto& step) {
        own.adam.zero_grad();
        const auto [X, y] = load(data, rows, epoch);
        const auto logits = own.net->forward(X.to(step.device()));
        const auto losses = torch::cross_entropy_loss(logits, y.to(logits.device()), {}, at::Reduction::Sum);
        (losses / step.rows()).backward();
        step.wait(own.net);
        own.adam.step();
        step.add("loss", losses);
      });
    }
    const double loss = replicas.take_sums().mean("loss");
    state = replicas.state();
    if (first) std::printf("epoch %d: loss %.6f\n", static_cast<int>(epoch + 1), loss);
    if (first && !folder.empty()) lockstep::write_checkpoint(folder, lockstep::to_checkpoint(state));
  }
  const auto sums =
      replicas.evaluate(std::pair(test.X, test.y), [](Learner& own, const auto& shard, auto& step) {
        step.add("right", own.net->forward(std::get<0>(shard)).argmax(1) == std::get<1>(shard));
      });
  if (first) std::printf("accuracy %.3f\n", sums.mean("right"));
  return sums.mean("right") > .9 ? 0 : 1;
} catch (const std::exception& error) {  // a lockstep::Error also has an exit code: see own_loop.cpp
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
