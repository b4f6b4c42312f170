
#include <lockstep/tests/catch.h>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/train_batch.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/torch_lenet.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr double kLr = .2;

// Pixels and labels that differ from row to row; the same values in every dtype.
Batch make_batch(int64_t rows, torch::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rows));
  const auto X = torch::rand({rows, 1, 28, 28}, generator, torch::TensorOptions(torch::kFloat32));
  return {X.to(dtype), torch::arange(rows).mul(7).remainder(10)};
}

// `world` replicas of the seed-0 network on the host, one thread each.
struct Replicas {
  Replicas(int world, torch::ScalarType dtype)
      : workers(std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU), 1) {
    const LeNet net(0, dtype);
    for (int rank = 0; rank < world; ++rank) params.push_back(get_params(net->parameters(), torch::kCPU));
  }
  std::vector<ShardSums> step(const Batch& batch) {
    return train_batch(split_batch(batch, workers.devices()), params, lenet, kLr, workers);
  }

  ReplicaWorkers workers;
  std::vector<Params> params;
};

// One step of SGD from the gradient of the summed loss.
Params expected_update(const Params& initial, const Params& gradients, int64_t rows) {
  Params updated;
  for (size_t i = 0; i < initial.size(); ++i) {
    updated.push_back(initial[i].detach() - kLr / static_cast<double>(rows) * gradients[i]);
  }
  return updated;
}

// The gradient that every replica holds before its update, read from the update itself: weights of zero
// become exactly the gradient in a step with lr = -rows. The network adds the initial weights to them.
Params summed_gradients(int world, const Batch& batch) {
  Replicas replicas(world, batch.input().scalar_type());
  const auto initial = get_params(replicas.params[0], torch::kCPU);
  for (auto& params : replicas.params) {
    for (auto& param : params) param.detach().zero_();
  }
  const Network shifted = [&](const torch::Tensor& X, const Params& params) {
    Params sum;
    for (size_t i = 0; i < params.size(); ++i) sum.push_back(params[i] + initial[i].detach());
    return lenet(X, sum);
  };
  train_batch(batch.input(), batch.target(), replicas.params, shifted, -static_cast<double>(batch.rows()),
              replicas.workers);
  Params gradients;
  for (const auto& param : replicas.params[static_cast<size_t>(world - 1)])
    gradients.push_back(param.detach());
  return gradients;
}

Params to(const Params& params, torch::ScalarType dtype) {
  Params result;
  for (const auto& param : params) result.push_back(param.detach().to(dtype));
  return result;
}

}  // namespace

TEST_CASE(
    "in double, the gradient and one update of k replicas equal those of torch's operators on the whole "
    "batch") {
  const int64_t rows = GENERATE(1, 5, 7, 256, 257);
  const auto batch = make_batch(rows, torch::kFloat64);
  const LeNet net(0, torch::kFloat64);
  const auto expected = torch_gradients(net->parameters(), batch.input(), batch.target());
  const auto updated = expected_update(net->parameters(), expected, rows);
  for (const int world : {1, 2, 3, 4, 8}) {
    const auto gradients = summed_gradients(world, batch);
    Replicas replicas(world, torch::kFloat64);
    replicas.step(batch);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO(rows << " rows, " << world << " replicas, parameter " << i);
      const double scale = max_abs(expected[i]);
      CHECK(scale > 0);
      CHECK(max_difference(gradients[i], expected[i]) <= 1e-10 * scale);
      CHECK(max_difference(replicas.params[0][i], updated[i]) <=
            1e-10 * kLr / static_cast<double>(rows) * scale);
    }
  }
}

TEST_CASE("in float, the gradient of k replicas is as close to the double one as that of the whole batch") {
  const int64_t rows = GENERATE(1, 5, 7, 256, 257);
  const auto batch = make_batch(rows, torch::kFloat32);
  const LeNet net(0);
  const auto exact = torch_gradients(to(net->parameters(), torch::kFloat64),
                                     batch.input().to(torch::kFloat64), batch.target());
  const auto whole = torch_gradients(net->parameters(), batch.input(), batch.target());
  for (const int world : {1, 2, 3, 4, 8}) {
    const auto gradients = summed_gradients(world, batch);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO(rows << " rows, " << world << " replicas, parameter " << i);
      // The whole batch is computed by torch's kernels; lockstep's may round a little more.
      const double allowed = std::max(3 * max_difference(whole[i], exact[i]), 2e-6 * max_abs(exact[i]));
      CHECK(max_difference(gradients[i], exact[i]) <= allowed);
    }
  }
}

TEST_CASE("all replicas are bit-identical after every step, and the same steps give the same bits") {
  const int world = GENERATE(2, 3, 8);
  Replicas a(world, torch::kFloat32), b(world, torch::kFloat32);
  for (const int64_t rows : {64, 5, 1, 37}) {
    INFO(world << " replicas, " << rows << " rows");
    const auto batch = make_batch(rows, torch::kFloat32);
    a.step(batch);
    b.step(batch);
    for (size_t i = 0; i < a.params[0].size(); ++i) {
      for (const auto& params : a.params) CHECK(params[i].equal(a.params[0][i]));
      CHECK(b.params[0][i].equal(a.params[0][i]));
    }
  }
}

// pytorch/pytorch#19540: with LibTorch's data_parallel the optimizer could end up moving nothing.
TEST_CASE("weights move on all replicas") {
  Replicas replicas(3, torch::kFloat32);
  const LeNet initial(0);
  replicas.step(make_batch(2, torch::kFloat32));  // the third replica gets no rows
  for (const auto& params : replicas.params) {
    for (size_t i = 0; i < params.size(); ++i) {
      INFO("parameter " << i);
      CHECK_FALSE(params[i].equal(initial->parameters()[i]));
      CHECK(max_abs(params[i].grad()) == 0);  // zeroed for the next step
    }
  }
}

TEST_CASE("the sums over the shards are those of the batch") {
  // Logits are the first ten pixels, so that the expected counts are known.
  const Network pixels = [](const torch::Tensor& X, const Params& params) {
    return X.flatten(1).slice(1, 0, 10) + params[0];
  };
  const int64_t rows = 9;
  auto X = torch::zeros({rows, 1, 28, 28}, torch::kFloat64);
  // Row i: class 0 has logit 9, class 1 logit 8, ... and the label is class i: its rank is i.
  for (int64_t c = 0; c < 10; ++c) X.flatten(1).select(1, c).fill_(9 - c);
  const auto y = torch::arange(rows);
  double loss = 0;  // log sum exp(9 .. 0) - logit, row by row
  double sum_exp = 0;
  for (int c = 0; c < 10; ++c) sum_exp += std::exp(c);
  for (int64_t i = 0; i < rows; ++i) loss += std::log(sum_exp) - static_cast<double>(9 - i);

  for (const int world : {1, 2, 4, 8}) {
    INFO(world << " replicas");
    ReplicaWorkers workers(std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU), 1);
    std::vector<Params> params;
    for (int rank = 0; rank < world; ++rank)
      params.push_back(get_params({torch::zeros({10}, torch::kFloat64)}, torch::kCPU));
    const auto sums = train_batch(X, y, params, pixels, kLr, workers);
    REQUIRE(sums.size() == static_cast<size_t>(world));
    const auto total = torch::stack(sums).sum(0);
    CHECK(total[0].item<double>() == Approx(loss));
    CHECK(total[1].item<double>() == 1);  // only row 0's label is first
    CHECK(total[2].item<double>() == 5);  // rows 0 .. 4 are among the first five
  }
}

TEST_CASE("a batch of no rows is refused") {
  Replicas replicas(2, torch::kFloat32);
  CHECK_THROWS_AS(replicas.step(make_batch(0, torch::kFloat32)), UsageError);
}
