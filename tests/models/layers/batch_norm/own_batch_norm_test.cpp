// lockstep::BatchNorm1d, 2d and 3d against torch's own, and the operation they use for a whole batch.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include <lockstep/tests/catch.h>

#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/batch_norm.h>
#include <lockstep/models/layers/batch_norm/whole_batch_norm.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kChannels = 3;

// A replica alone.
class Alone : public StatisticsExchange {
 public:
  torch::Tensor gather(const torch::Tensor& own) override {
    ++calls;
    return own.unsqueeze(0);
  }
  int calls = 0;
};

torch::nn::BatchNormOptions options_of(int which) {
  auto options = torch::nn::BatchNormOptions(kChannels).eps(1e-3).momentum(.3);
  if (which == 1) options.affine(false);
  if (which == 2) options.track_running_stats(false);
  if (which == 3) options.momentum(std::nullopt);  // means over all batches
  return options;
}

torch::Tensor numbers(const std::vector<int64_t>& sizes, double phase) {
  int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return torch::arange(count, torch::kFloat64).mul(.7).add(phase).sin().mul(2).add(1).view(sizes);
}

struct Pass {
  torch::Tensor y, dx;
};

// A forward and a backward pass, with other weights than the initial ones.
template <class Norm>
Pass pass(Norm& norm, const torch::Tensor& numbers_in) {
  const auto x = numbers_in.clone().requires_grad_();
  const auto y = norm->forward(x);
  const auto weights = torch::arange(y.numel(), torch::kFloat64).mul(1.3).cos().view_as(y);
  (y * y * weights.to(y.scalar_type())).sum().backward();
  return {y.detach(), x.grad()};
}

template <class Norm>
void set_weights(Norm& norm, torch::ScalarType type) {
  norm->to(type);
  if (!norm->options.affine()) return;
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(torch::tensor({1.5, -.5, 2.}));
  norm->bias.copy_(torch::tensor({.1, .2, -.3}));
}

// The largest difference between two modules' parameters, gradients and buffers. Their names must be the
// same.
double difference_of(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto of_a = a.named_parameters(), of_b = b.named_parameters();
  const auto buffers_a = a.named_buffers(), buffers_b = b.named_buffers();
  REQUIRE(of_a.keys() == of_b.keys());
  REQUIRE(buffers_a.keys() == buffers_b.keys());
  double largest = 0;
  for (const auto& item : of_a) {
    largest = std::max(largest, max_difference(item.value(), of_b[item.key()]));
    largest = std::max(largest, max_difference(item.value().grad(), of_b[item.key()].grad()));
  }
  for (const auto& item : buffers_a) {
    CHECK(item.value().scalar_type() == buffers_b[item.key()].scalar_type());
    largest = std::max(largest, max_difference(item.value(), buffers_b[item.key()]));
  }
  return largest;
}

// Two batches in training mode, one in evaluation mode: with the same bits, or with bound > 0 to rounding.
template <class Ours, class Torchs>
void check_as_torchs(const std::vector<int64_t>& sizes, const torch::nn::BatchNormOptions& options,
                     StatisticsExchange* exchange, torch::ScalarType type, double bound) {
  Ours ours(options);
  Torchs torchs(options);
  set_weights(ours, type);
  set_weights(torchs, type);
  ours->exchange_statistics(exchange);
  for (int step = 0; step < 3; ++step) {
    const bool training = step < 2;
    ours->train(training);
    torchs->train(training);
    const auto x = numbers(sizes, step).to(type);
    const auto found = pass(ours, x), expected = pass(torchs, x);
    CHECK(found.y.scalar_type() == expected.y.scalar_type());
    CHECK(max_difference(found.y, expected.y) <= bound * max_abs(expected.y));
    CHECK(max_difference(found.dx, expected.dx) <= bound * max_abs(expected.dx));
    CHECK(difference_of(*ours, *torchs) <= 100 * bound);
  }
}

// Checks batch norms of inputs of every rank.
void check_all_as_torchs(const torch::nn::BatchNormOptions& options, StatisticsExchange* exchange,
                         torch::ScalarType type, double bound) {
  check_as_torchs<BatchNorm1d, torch::nn::BatchNorm1d>({5, kChannels}, options, exchange, type, bound);
  check_as_torchs<BatchNorm1d, torch::nn::BatchNorm1d>({2, kChannels, 4}, options, exchange, type, bound);
  check_as_torchs<BatchNorm2d, torch::nn::BatchNorm2d>({3, kChannels, 4, 2}, options, exchange, type, bound);
  check_as_torchs<BatchNorm3d, torch::nn::BatchNorm3d>({2, kChannels, 2, 3, 2}, options, exchange, type,
                                                       bound);
}

}  // namespace

TEST_CASE("alone, lockstep's batch norms have torch's bits, names and options") {
  const int which = GENERATE(0, 1, 2, 3);
  for (const auto type : {torch::kFloat64, torch::kFloat32}) {
    check_all_as_torchs(options_of(which), nullptr, type, 0);
  }
}

TEST_CASE("with an exchange a single replica computes what torch does, and exchanges only in training") {
  const int which = GENERATE(0, 1, 2, 3);
  Alone alone;
  check_all_as_torchs(options_of(which), &alone, torch::kFloat64, 1e-14);
  CHECK(alone.calls == 4 * 2 * 2);  // layers x batches x (forward, backward)
  check_all_as_torchs(options_of(which), &alone, torch::kFloat32, 1e-5);
}

TEST_CASE("statistics of bf16 rows are float, as torch's with float weights") {
  Alone alone;
  const auto x = numbers({6, kChannels, 4, 4}, 0).add(20);  // in bf16 the mean would lose .06
  const auto normed = [&](StatisticsExchange* exchange) {
    BatchNorm2d norm(kChannels);
    norm->exchange_statistics(exchange);
    return pass(norm, x.to(torch::kBFloat16));
  };
  const auto found = normed(&alone), expected = normed(nullptr);
  CHECK(found.y.scalar_type() == torch::kBFloat16);
  CHECK(max_difference(found.y, expected.y) <= 1. / 128 * max_abs(expected.y));
  CHECK(max_difference(found.dx, expected.dx) <= 1. / 64 * max_abs(expected.dx));
}

TEST_CASE("channels_last rows stay so") {
  Alone alone;
  BatchNorm2d norm(kChannels);
  norm->to(torch::kFloat64);
  const auto x = numbers({3, kChannels, 4, 2}, 0);
  const auto expected = pass(norm, x);
  norm->exchange_statistics(&alone);
  const auto found = pass(norm, x.contiguous(torch::MemoryFormat::ChannelsLast));
  CHECK(found.y.is_contiguous(torch::MemoryFormat::ChannelsLast));
  CHECK(found.dx.is_contiguous(torch::MemoryFormat::ChannelsLast));
  CHECK(max_difference(found.y, expected.y) <= 1e-14);
  CHECK(max_difference(found.dx, expected.dx) <= 1e-13);
}

TEST_CASE("a first layer, whose input needs no gradient, exchanges nothing backward") {
  Alone alone;
  BatchNorm1d norm(kChannels);
  norm->exchange_statistics(&alone);
  norm->forward(torch::rand({4, kChannels})).pow(2).sum().backward();
  CHECK(alone.calls == 1);
  CHECK(norm->bias.grad().defined());
}

TEST_CASE("a clone is lockstep's, with the same numbers and no exchange") {
  Alone alone;
  BatchNorm2d norm(options_of(0));
  set_weights(norm, torch::kFloat64);
  norm->exchange_statistics(&alone);
  pass(norm, numbers({3, kChannels, 4, 2}, 0));
  norm->zero_grad();
  norm->eval();
  const auto copy = std::dynamic_pointer_cast<BatchNorm2dImpl>(norm->clone());
  REQUIRE(copy);
  CHECK_FALSE(copy->is_training());
  CHECK(copy->running_mean.equal(norm->running_mean));
  CHECK(copy->named_parameters()["weight"].equal(norm->weight));
  norm->running_mean.zero_();  // they share no memory
  CHECK_FALSE(copy->running_mean.equal(norm->running_mean));
  copy->train();
  CHECK(copy->exchange() == nullptr);
}

TEST_CASE("a whole batch needs two values per channel, the right rank, and its own forward") {
  Alone alone;
  BatchNorm1d norm(kChannels);
  norm->exchange_statistics(&alone);
  CHECK_THROWS_WITH(norm->forward(torch::rand({1, kChannels})),
                    ContainsSubstring("two values per channel") && ContainsSubstring("have 1"));
  CHECK_THROWS_AS(norm->forward(torch::rand({0, kChannels})), UsageError);
  CHECK_NOTHROW(norm->forward(torch::rand({1, kChannels, 2})));
  CHECK_THROWS_AS(norm->forward(torch::rand({2, kChannels, 2, 2})), c10::Error);
  const std::shared_ptr<torch::nn::BatchNorm1dImpl> as_torchs = norm.ptr();
  CHECK_THROWS_WITH(as_torchs->forward(torch::rand({4, kChannels})),
                    ContainsSubstring("called as one of torch's"));
  norm->eval();
  CHECK_NOTHROW(as_torchs->forward(torch::rand({4, kChannels})));
}

TEST_CASE("gradients of a whole batch's gradients are refused") {
  Alone alone;
  BatchNorm1d norm(kChannels);
  norm->exchange_statistics(&alone);
  const auto x = torch::rand({4, kChannels}).requires_grad_();
  const auto y = norm->forward(x).pow(2).sum();
  CHECK_THROWS_WITH(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true),
                    ContainsSubstring("differentiated once"));
}
