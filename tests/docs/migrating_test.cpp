// The C++ code of docs/migrating.md, your-loop.md and sharding.md: pages.py looks for each block here, line
// by line. It leaves out lines with a comment that begins with `test`.
#include <torch/torch.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/models/lenet.h>
#include <lockstep/models/load_weights.h>
#include <lockstep/parallel/build_replicas.h>
#include <lockstep/parallel/check_split.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/replicas.h>
#include <lockstep/parallel/sharded_optimizer.h>
#include <lockstep/parallel/train_batch.h>
#include <lockstep/parallel/train_epochs.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep::testing;

namespace {

namespace F = torch::nn::functional;

// The module that the programs of the page have already.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(int64_t hidden)
      : first_(register_module("first", torch::nn::Linear(6, hidden))),
        norm_(register_module("norm",
                              torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(hidden).momentum(.1)))),
        second_(register_module("second", torch::nn::Linear(hidden, 3))) {}

  torch::Tensor forward(const torch::Tensor& X) {
    const auto hidden = first_(X);
    return second_(torch::tanh(with_norm ? norm_(hidden) : hidden));
  }

  bool with_norm = true;

 private:
  torch::nn::Linear first_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Linear second_;
};
TORCH_MODULE(Net);

const std::vector<torch::Device> devices = {torch::kCPU, torch::kCPU};

lockstep::Batch page_rows(int64_t rows, int64_t first = 0) {
  const auto X = (torch::arange(rows * 6).add(first).mul(37).remainder(101) / 101).view({rows, 6});
  return {X, X.slice(1, 0, 3).argmax(1)};  // the class: which of the first three numbers is the largest
}

constexpr int64_t kPhotos = 100;

struct Photos : torch::data::datasets::Dataset<Photos> {
  torch::data::Example<> get(size_t row) override {
    const auto rows = page_rows(1, static_cast<int64_t>(row) * 6);
    return {rows.input()[0], rows.target()[0]};
  }
  std::optional<size_t> size() const override { return size_t{kPhotos}; }
};

// Changes the order of numbers of which none is a class.
struct RandomFlip : torch::data::transforms::Transform<torch::data::Example<>, torch::data::Example<>> {
  torch::data::Example<> apply(torch::data::Example<> row) override {
    if (torch::rand({}).item<float>() < .5f) return row;
    return {torch::cat({row.data.slice(0, 0, 3), row.data.slice(0, 3).flip(0)}), row.target};
  }
};

std::vector<torch::Tensor> page_copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

void copy_into(const std::vector<torch::Tensor>& from, const std::vector<torch::Tensor>& into) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < from.size(); ++i) into[i].copy_(from[i]);
}

}  // namespace

TEST_CASE("a loop that called data_parallel trains on replicas as on the whole batch") {
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;
  for (const auto& rows : {page_rows(9), page_rows(10, 7), page_rows(1, 3)}) {
    batches.emplace_back(rows.input(), rows.target());
  }
  std::vector<torch::Tensor> initial;
  std::vector<std::vector<torch::Tensor>> trained(devices.size());

  lockstep::ReplicaWorkers workers(devices);
  const auto communicator = lockstep::make_communicator({.devices = devices});
  auto nets = lockstep::build_replicas(workers.size(), [] { return Net(64); });  // with the same draws
  workers.run(*communicator, [&](int local, lockstep::Endpoint& endpoint) {      // in each replica's thread
    const auto rank = static_cast<size_t>(endpoint.rank());
    auto& net = nets[static_cast<size_t>(local)];
    net->with_norm = false;  // test: each replica has its own statistics
    net->to(endpoint.device());
    lockstep::GradientSync sync(endpoint, {.unused = lockstep::UnusedParameters::kZero});
    sync.attach(*net);                                        // rank 0's weights for all
    if (rank == 0) initial = page_copies(net->parameters());  // test
    torch::optim::SGD sgd(net->parameters(), .1);
    for (const auto& [X, y] : batches) {
      const auto own_X = X.tensor_split(endpoint.world_size())[rank].to(endpoint.device());
      const auto own_y = y.tensor_split(endpoint.world_size())[rank].to(endpoint.device());
      sgd.zero_grad();
      if (own_y.size(0) > 0) {  // the last batch may have fewer rows than there are replicas
        const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
        (F::cross_entropy(net(own_X), own_y, sum) / y.size(0)).backward();
      }
      sync.wait();  // every .grad is that of the whole batch's mean loss
      sgd.step();
    }
    trained[rank] = page_copies(net->parameters());  // test
  });

  Net whole(64);
  whole->with_norm = false;
  copy_into(initial, whole->parameters());
  torch::optim::SGD sgd(whole->parameters(), .1);
  for (const auto& [X, y] : batches) {
    sgd.zero_grad();
    F::cross_entropy(whole(X), y).backward();
    sgd.step();
  }
  for (const auto& params : trained) {
    for (size_t i = 0; i < params.size(); ++i) {
      CHECK(params[i].equal(trained[0][i]));
      CHECK(max_difference(params[i], whole->parameters()[i]) <= 1e-6);
    }
  }
  CHECK(max_difference(trained[0][0], initial[0]) > 1e-4);
}

TEST_CASE("a program of torchrun becomes one with a Trainer") {
  const TempFolder folder;
  const auto path = folder / "net.safetensors";
  const auto rows = page_rows(100);
  const auto data = lockstep::resident_rows(rows);
  constexpr size_t kBatch = 32;
  torch::manual_seed(0);
  double accuracy = 0;

  lockstep::TrainerOptions options;
  options.devices = lockstep::parse_devices("cpu");                              // of this process
  options.process_group = lockstep::join_process_group(lockstep::find_world());  // null if it is alone
  options.lr.lr = .1;
  options.replica.optimizer.momentum = .9;
  lockstep::Trainer trainer(lockstep::model_factory<NetImpl>(int64_t{64}), data, data, options);
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    const auto order = lockstep::batch_order(/*seed=*/0, epoch, rows.rows());
    for (size_t begin = 0; begin < order.size(); begin += kBatch) {
      trainer.step(std::span(order).subspan(begin, std::min(kBatch, order.size() - begin)));
    }
    accuracy = trainer.evaluate()["top1"];  // over all processes
  }
  const auto weights = trainer.weights();
  if (trainer.first_rank() == 0) {
    lockstep::save_safetensors(path, {.tensors = weights, .metadata = {}}, /*overwrite=*/true);
  }

  CHECK(accuracy > .5);  // of three classes
  CHECK(trainer.steps_taken() == 40);

  Net net(64);
  lockstep::load_weights_into(*net, lockstep::load_safetensors(path).tensors);

  const auto parameters = net->named_parameters(), buffers = net->named_buffers();
  CHECK(weights.size() == parameters.size() + buffers.size());
  for (const auto& [name, tensor] : weights) {
    const auto* loaded = parameters.find(name);
    if (!loaded) loaded = buffers.find(name);
    REQUIRE(loaded);
    CHECK(loaded->equal(tensor));
  }
}

TEST_CASE("a data set with augmentation, read by workers, becomes the rows of a Trainer") {
  const auto data = lockstep::resident_rows(page_rows(kPhotos));
  lockstep::TrainerOptions options;
  options.devices = devices;
  options.lr.lr = .1;
  options.replica.optimizer.momentum = .9;
  torch::manual_seed(0);

  const auto photos = lockstep::dataset_rows(Photos().map(RandomFlip()), {.seed = 1, .workers = 4});
  lockstep::Trainer trainer(lockstep::model_factory<NetImpl>(int64_t{64}), photos, data, options);
  lockstep::train_epochs(trainer, {.epochs = 10, .batch_size = 32, .order = [](int64_t epoch) {
                                     return lockstep::batch_order(/*seed=*/1, epoch, kPhotos);
                                   }});

  CHECK(trainer.steps_taken() == 40);
  CHECK(trainer.evaluate()["top1"] > .5);  // of three classes
}

TEST_CASE("a mean that Python's DistributedDataParallel averages is found by check_split()") {
  const auto rows = page_rows(100);
  const auto data = lockstep::resident_rows(rows);
  std::string said;
  try {
    const auto factory =
        lockstep::model_factory<NetImpl>(int64_t{64}).loss([](NetImpl& net, const lockstep::Batch& in) {
          return F::cross_entropy(net.forward(in.input()), in.target());  // a mean
        });
    const auto order = lockstep::batch_order(/*seed=*/0, /*epoch=*/0, rows.rows());
    lockstep::check_split(factory, data, std::span(order).first(64), lockstep::BnPolicy::kSync);
  } catch (const lockstep::UsageError& error) {
    said = error.message();
  }
  CHECK_THAT(said, Catch::Matchers::StartsWith("the loss of 64 rows is "));
  CHECK_THAT(said, Catch::Matchers::EndsWith(": it seems to be a mean"));
}

TEST_CASE("a loop of Python's DistributedDataParallel becomes one with GradientSync") {
  const auto loss = [](Net& net, const lockstep::Batch& rows) {
    return F::cross_entropy(net(rows.input()), rows.target(),
                            F::CrossEntropyFuncOptions().reduction(torch::kSum)) /
           16;
  };
  const std::vector<lockstep::Batch> micro_batches = {page_rows(4), page_rows(4, 5)};
  const uint64_t seed = 0;
  std::vector<std::vector<torch::Tensor>> trained(devices.size());

  const auto group = lockstep::join_process_group(lockstep::find_world());
  lockstep::ReplicaWorkers workers(devices);
  const auto communicator = lockstep::make_communicator({.devices = devices, .process_group = group});
  auto nets = lockstep::build_replicas(workers.size(), [] { return Net(64); });
  workers.run(*communicator, [&](int local, lockstep::Endpoint& endpoint) {
    auto& net = nets[static_cast<size_t>(local)];
    net->to(endpoint.device());
    lockstep::GradientSyncOptions options;
    options.unused = lockstep::UnusedParameters::kZero;
    options.hook = lockstep::bf16_hook();
    lockstep::GradientSync sync(endpoint, options);
    sync.attach(*net);
    torch::optim::Adam adam(net->parameters(), .01);
    for (int step = 0; step < 10; ++step) {
      const lockstep::ReplicaRandom random(seed, step, endpoint.rank());  // what dropout draws
      lockstep::broadcast_buffers(*net, endpoint);
      adam.zero_grad();
      {
        const auto no_sync = sync.no_sync();
        loss(net, micro_batches[0]).backward();
      }
      loss(net, micro_batches[1]).backward();
      sync.wait();
      adam.step();
    }
    trained[static_cast<size_t>(endpoint.rank())] = page_copies(net->parameters());  // test
  });

  for (size_t i = 0; i < trained[0].size(); ++i) CHECK(trained[1][i].equal(trained[0][i]));
}

TEST_CASE("a loop of Python's DistributedDataParallel becomes one with Replicas") {
  const std::vector<lockstep::Batch> batches(30, page_rows(16));
  const auto group = lockstep::join_process_group(lockstep::find_world());

  struct Learner {  // one per replica
    Net net{64};
    torch::optim::Adam adam{net->parameters(), .01};
  };
  lockstep::Replicas<Learner> replicas({.devices = devices, .process_group = group});
  replicas.attach(&Learner::net);      // rank 0's weights for all
  for (const auto& batch : batches) {  // whole ones, the same in every process
    replicas.step(batch, [](Learner& own, const lockstep::Batch& rows, lockstep::Step& step) {
      own.adam.zero_grad();
      const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
      const auto loss = F::cross_entropy(own.net(rows.input()), rows.target(), sum);  // of its own rows
      (loss / step.rows()).backward();                                                // by the rows of all
      step.wait();  // every .grad is the sum over all replicas
      own.adam.step();
      step.add("loss", loss);
    });
  }

  CHECK(replicas.steps_taken() == 30);
  const auto mean_loss = [&] {
    return replicas
        .evaluate(batches[0],
                  [](Learner& own, const lockstep::Batch& rows, lockstep::Step& step) {
                    const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
                    step.add("loss", F::cross_entropy(own.net(rows.input()), rows.target(), sum));
                  })
        .mean("loss");
  };
  CHECK(mean_loss() < replicas.take_sums().mean("loss"));  // than over all steps
}

TEST_CASE("a loop's replicas share out the state of its optimizer") {
  const std::vector<lockstep::Batch> batches(30, page_rows(16));
  struct Plain {
    Net net{64};
    torch::optim::Adam adam{net->parameters(), .01};
  };
  struct Learner {  // one per replica
    Net net{64};
    lockstep::ShardedOptimizer adam{torch::optim::Adam(net->parameters(), .01)};  // around the optimizer
  };
  const auto train = [&](auto& replicas, auto member, auto update) {
    replicas.attach(member);
    for (const auto& batch : batches) {
      replicas.step(batch, [&](auto& own, const lockstep::Batch& rows, lockstep::Step& step) {
        own.adam.zero_grad();
        const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
        (F::cross_entropy(own.net(rows.input()), rows.target(), sum) / step.rows()).backward();
        update(own, step);
      });
    }
  };

  torch::manual_seed(0);
  lockstep::Replicas<Learner> sharded({.devices = devices});
  sharded.keep(&Learner::adam);
  train(sharded, &Learner::net, [](Learner& own, lockstep::Step& step) {
    step.wait();          // every .grad is the sum over all replicas
    own.adam.step(step);  // and every replica has all new weights
  });

  torch::manual_seed(0);
  lockstep::Replicas<Plain> whole({.devices = devices});
  whole.keep(&Plain::adam);
  train(whole, &Plain::net, [](Plain& own, lockstep::Step& step) {
    step.wait();
    own.adam.step();
  });
  const auto found = sharded.state(), expected = whole.state();
  CHECK(expected.optimizer.size() == 1 + 3 * 6);  // the rate; three of each parameter
  for (const auto& [of_found, of_expected] :
       {std::pair(found.model, expected.model), std::pair(found.optimizer, expected.optimizer)}) {
    REQUIRE(of_found.size() == of_expected.size());
    for (size_t i = 0; i < of_found.size(); ++i) CHECK(of_found[i].tensor.equal(of_expected[i].tensor));
  }
  whole.load(found);  // goes on
  CHECK(whole.steps_taken() == 30);
}

TEST_CASE("the chapter's training from scratch") {
  const std::vector<std::pair<torch::Tensor, torch::Tensor>> batches = {
      {torch::linspace(0, 1, 6 * 784).view({6, 1, 28, 28}), torch::arange(6)},
      {torch::linspace(1, 0, 5 * 784).view({5, 1, 28, 28}), torch::arange(5)}};
  const auto params = lockstep::LeNet(uint64_t{0})->parameters();
  constexpr double kLr = .2;

  std::vector<lockstep::Params> device_params;
  for (const auto device : devices) device_params.push_back(lockstep::get_params(params, device));
  lockstep::ReplicaWorkers workers(devices);  // a thread per device, for all steps
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const auto& [X, y] : batches) {
      lockstep::train_batch(X, y, device_params, lockstep::lenet, kLr, workers);
    }
  }

  for (size_t i = 0; i < params.size(); ++i) CHECK(device_params[1][i].equal(device_params[0][i]));
  CHECK(max_difference(device_params[0].back(), params.back()) > 1e-3);
}
