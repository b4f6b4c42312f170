#include <torch/data/example.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/parallel/replicas/batch_rows.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Ranges {
  int64_t rows() const { return 6; }
  std::string shard(int64_t begin, int64_t rows, torch::Device device) const {
    return std::to_string(begin) + "+" + std::to_string(rows) + " on " + device.str();
  }
};

}  // namespace

TEST_CASE("whatever has rows is a batch, and its shards are consecutive rows of it") {
  const auto X = torch::arange(12).view({6, 2}), y = torch::arange(6),
             none = torch::empty({0, 2}, torch::kInt64);
  const auto own_X = X.narrow(0, 2, 3), own_y = y.narrow(0, 2, 3);
  const auto shard = [](const auto& batch) { return batch_shard(batch, 2, 3, torch::kCPU); };

  CHECK(batch_rows(int64_t{6}) == 6);
  CHECK(shard(int64_t{6}).begin == 2);
  CHECK(shard(6).end() == 5);

  const std::vector<int64_t> numbers = {9, 8, 7, 6, 5, 4};
  CHECK(batch_rows(numbers) == 6);
  CHECK(shard(numbers).front() == 7);
  CHECK(shard(std::span(numbers)).size() == 3);

  CHECK(batch_rows(X) == 6);
  CHECK(shard(X).equal(own_X));
  CHECK(shard(X).is_alias_of(X));
  CHECK(batch_shard(X, 6, 0, torch::kCPU).equal(none));

  const auto [pair_X, pair_y] = shard(std::pair(X, y));
  CHECK(pair_X.equal(own_X));
  CHECK(pair_y.equal(own_y));
  const auto nested = std::tuple(X, std::pair(y, numbers));
  CHECK(batch_rows(nested) == 6);
  CHECK(std::get<0>(std::get<1>(shard(nested))).equal(own_y));
  CHECK(std::get<1>(shard(std::array{X, y})).equal(own_y));

  const std::vector<torch::Tensor> list = {X, y};
  CHECK(batch_rows(list) == 6);
  CHECK(shard(list)[1].equal(own_y));

  const torch::data::Example<> example(X, y);
  CHECK(batch_rows(example) == 6);
  CHECK(shard(example).target.equal(own_y));
  const torch::data::TensorExample unlabelled(X);
  CHECK(batch_rows(unlabelled) == 6);
  CHECK(shard(unlabelled).data.equal(own_X));

  const Batch batch = {{"x", X}, {"y", y, Role::kTarget}};
  CHECK(batch_rows(batch) == 6);
  CHECK(shard(batch)["x"].is_alias_of(X));
  CHECK(shard(batch)["x"].equal(own_X));
  CHECK(shard(batch).target().equal(own_y));

  CHECK(batch_rows(Ranges()) == 6);
  CHECK(shard(Ranges()) == "2+3 on cpu");
}

TEST_CASE("batches whose parts have other rows, or none, are refused") {
  const auto X = torch::zeros({6, 2});
  CHECK_THAT(refusal_of([&] { batch_rows(std::pair(X, torch::zeros({5}))); }),
             ContainsSubstring("6, 5 rows"));
  CHECK_THAT(refusal_of([&] { batch_rows(torch::data::Example<>(X, torch::zeros({5}))); }),
             ContainsSubstring("6, 5 rows"));
  CHECK_THAT(refusal_of([] { batch_rows(std::vector<torch::Tensor>()); }), ContainsSubstring("no tensors"));
  CHECK_THAT(refusal_of([] { batch_rows(torch::Tensor()); }), ContainsSubstring("undefined"));
  CHECK_THAT(refusal_of([] { batch_rows(torch::ones({})); }), ContainsSubstring("one number"));
}

TEST_CASE("digests tell row numbers, labels and token ids apart, in their order and their places") {
  const std::vector<int64_t> rows = {3, 1, 2}, other = {1, 3, 2}, longer = {3, 1, 2, 0};
  CHECK(batch_digest(rows) == batch_digest(std::span(rows)));
  CHECK(batch_digest(rows) != batch_digest(other));
  CHECK(batch_digest(rows) != batch_digest(longer));

  const auto X = torch::zeros({3, 2}), a = torch::tensor(rows), b = torch::tensor(other);
  CHECK(batch_digest(X) == batch_digest(X + 1));  // it looks at no such numbers
  CHECK(batch_digest(std::pair(X, a)) != batch_digest(std::pair(X, b)));
  CHECK(batch_digest(std::pair(a, b)) != batch_digest(std::pair(b, a)));
  CHECK(batch_digest(std::pair(a, a)) != batch_digest(std::pair(b, b)));
  using Tensors = std::vector<torch::Tensor>;
  CHECK(batch_digest(Tensors{X, a}) != batch_digest(Tensors{X, b}));
  CHECK(batch_digest(Batch(X, a)) != batch_digest(Batch(X, b)));
  CHECK(batch_digest(torch::data::Example<>(X, a)) != batch_digest(torch::data::Example<>(X, b)));
  CHECK(batch_digest(torch::data::TensorExample(a)) != batch_digest(torch::data::TensorExample(b)));

  const auto tokens = torch::arange(6).view({3, 2});
  CHECK(batch_digest(tokens) != batch_digest(tokens.flip(0)));
  CHECK(batch_digest(tokens) != batch_digest(tokens.view({2, 3})));
  CHECK(batch_digest(tokens) == batch_digest(tokens.t().contiguous().t()));  // in any memory format
  CHECK(batch_digest(int64_t{3}) == batch_digest(int64_t{4}));               // rows are compared as such
}

TEST_CASE("what has no rows is no batch") {
  STATIC_REQUIRE(BatchWithRows<std::tuple<torch::Tensor, std::pair<Batch, std::vector<int64_t>>>>);
  STATIC_REQUIRE(BatchWithRows<Ranges>);
  STATIC_REQUIRE_FALSE(BatchWithRows<bool>);
  STATIC_REQUIRE_FALSE(BatchWithRows<double>);
  STATIC_REQUIRE_FALSE(BatchWithRows<std::string>);
  STATIC_REQUIRE_FALSE(BatchWithRows<std::vector<int>>);
  STATIC_REQUIRE_FALSE(BatchWithRows<std::vector<torch::data::Example<>>>);  // not stacked
  STATIC_REQUIRE_FALSE(BatchWithRows<torch::data::Example<torch::Tensor, int64_t>>);
  STATIC_REQUIRE_FALSE(BatchWithRows<std::pair<torch::Tensor, std::vector<int>>>);
}
