#include <ATen/CPUGeneratorImpl.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/transforms/stack.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/support/error.h>
#include <lockstep/support/split_mix64.h>
#include <lockstep/tests/data/noisy_rows.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Batches = std::vector<std::vector<int64_t>>;

std::vector<int64_t> values_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

// The global batches of an epoch, by hand.
Batches cut_order(uint64_t seed, int64_t epoch, int64_t rows, int64_t batch_rows) {
  Batches batches;
  const auto order = batch_order(seed, epoch, rows);
  for (size_t i = 0; i < order.size(); ++i) {
    if (static_cast<int64_t>(i) % batch_rows == 0) batches.emplace_back();
    batches.back().push_back(order[i]);
  }
  return batches;
}

// All data of an epoch from a step on, in the order of its rows on all ranks, one after the other in each
// step.
template <class Dataset>
torch::Tensor epoch_data(const Dataset& data_set, int world, int workers, int64_t epoch, int64_t first = 0) {
  std::vector<std::vector<torch::Tensor>> by_step;
  for (int rank = 0; rank < world; ++rank) {
    DataLoader<Dataset> loader(
        data_set, {.batch_rows = 8, .rank = rank, .world = world, .seed = 7, .workers = workers});
    loader.start(epoch, first);
    by_step.resize(static_cast<size_t>(loader.steps()));
    while (const auto step = loader.next()) {
      if (step->batch) by_step[static_cast<size_t>(step->number)].push_back(step->batch->data);
    }
  }
  std::vector<torch::Tensor> all;
  for (const auto& step : by_step) all.insert(all.end(), step.begin(), step.end());
  return torch::cat(all);
}

}  // namespace

TEST_CASE("the replicas' loaders together give the batches of batch_order, for any number of replicas") {
  for (const auto& [rows, batch_rows] :
       std::vector<std::pair<int64_t, int64_t>>{{29, 8}, {24, 8}, {5, 8}, {3, 1}, {1, 7}, {0, 4}}) {
    for (const int world : {1, 2, 3, 8}) {
      const int workers = world == 2 ? 3 : 1;
      INFO(rows << " rows in batches of " << batch_rows << ", " << world << " ranks, " << workers
                << " workers");
      Batches expected, found;
      for (const int64_t epoch : {3, 4}) {
        for (auto& batch : cut_order(/*seed=*/7, epoch, rows, batch_rows)) expected.push_back(batch);
      }
      found.resize(expected.size());
      for (int rank = 0; rank < world; ++rank) {
        DataLoader loader(
            NoisyRows(static_cast<size_t>(rows)),
            {.batch_rows = batch_rows, .rank = rank, .world = world, .seed = 7, .workers = workers});
        size_t place = 0;
        for (const int64_t epoch : {3, 4}) {
          loader.start(epoch);
          for (int64_t number = 0; const auto step = loader.next(); ++number) {
            auto& global = found.at(place);
            CHECK(std::pair(step->epoch, step->number) == std::pair(epoch, number));
            CHECK(step->batch_rows == static_cast<int64_t>(expected[place].size()));
            ++place;
            REQUIRE(step->batch.has_value() == !step->rows.empty());
            if (!step->batch) continue;
            CHECK(values_of(step->batch->target) == step->rows);
            global.insert(global.end(), step->rows.begin(), step->rows.end());
          }
          CHECK_FALSE(loader.next());
        }
        CHECK(place == expected.size());  // steps, the same on all ranks
      }
      CHECK(found == expected);  // in rank order, each row once
    }
  }
}

TEST_CASE("shares of the rows are those of the options, in each batch") {
  std::vector<std::vector<int64_t>> sizes(3);  // by rank
  std::vector<int64_t> first_batch;
  for (int rank = 0; rank < 3; ++rank) {
    DataLoader loader(NoisyRows(12),
                      {.batch_rows = 8, .rank = rank, .world = 3, .seed = 7, .split = {2, 0, 6}});
    loader.start(0);
    while (const auto step = loader.next()) {
      sizes[static_cast<size_t>(rank)].push_back(static_cast<int64_t>(step->rows.size()));
      if (step->number == 0) first_batch.insert(first_batch.end(), step->rows.begin(), step->rows.end());
    }
  }
  CHECK(sizes == std::vector<std::vector<int64_t>>{{2, 1}, {0, 0}, {6, 3}});
  CHECK(first_batch == cut_order(/*seed=*/7, 0, 12, 8)[0]);
}

TEST_CASE("a row draws the numbers of (seed, epoch, row), whatever reads it, and after a resume") {
  const NoisyRows rows(21);
  const auto stacked = NoisyRows(21).map(torch::data::transforms::Stack<>());
  torch::manual_seed(1);
  std::vector<torch::Tensor> drawn;
  auto generator = at::detail::createCPUGenerator();
  for (const auto row : batch_order(7, /*epoch=*/5, 21)) {
    generator.set_current_seed(SplitMix64(7, {4, 5, static_cast<uint64_t>(row)}).next());
    drawn.push_back(torch::rand({3}, generator));
  }
  const auto expected = torch::stack(drawn);
  const auto default_state = at::detail::getDefaultCPUGenerator().get_state();
  for (const int world : {1, 3}) {
    for (const int workers : {1, 4}) {
      INFO(world << " ranks, " << workers << " workers");
      CHECK(epoch_data(rows, world, workers, 5).equal(expected));
      CHECK(epoch_data(stacked, world, workers, 5).equal(expected));
      CHECK(epoch_data(rows, world, workers, 5, /*first=*/1).equal(expected.narrow(0, 8, 13)));
    }
  }
  CHECK_FALSE(epoch_data(rows, 1, 1, 6).equal(expected));
  CHECK(at::detail::getDefaultCPUGenerator().get_state().equal(default_state));
  const auto flipped = epoch_data(augmented(rows), 1, 1, 5);
  CHECK(epoch_data(augmented(rows), 3, 2, 5).equal(flipped));
  CHECK(flipped.sum(1).allclose(expected.sum(1)));
  CHECK_FALSE(flipped.equal(expected));
}

TEST_CASE("rows come as their type says: tensors as one batch, others as a vector") {
  const auto first = [](auto&& data_set) {
    DataLoader loader(data_set, {.batch_rows = 2});
    loader.start(0);
    return *loader.next()->batch;
  };
  const auto order = batch_order(0, 0, 5);
  const auto table = torch::arange(10).view({5, 2});
  const auto expected = torch::stack({table[order[0]], table[order[1]]});
  const torch::data::datasets::TensorDataset tensors(table);
  CHECK(first(tensors).data.equal(expected));
  CHECK(first(torch::data::datasets::TensorDataset(tensors).map(
                  torch::data::transforms::Stack<torch::data::TensorExample>()))
            .data.equal(expected));
  struct Named : torch::data::datasets::Dataset<Named, std::string> {
    std::string get(size_t row) override { return "row " + std::to_string(row); }
    std::optional<size_t> size() const override { return 5; }
  };
  CHECK(first(Named()) ==
        std::vector<std::string>{"row " + std::to_string(order[0]), "row " + std::to_string(order[1])});
}

TEST_CASE("a resumed epoch does not read the rows before, and no more is read ahead than it says") {
  NoisyRows rows(64);
  const auto order = batch_order(0, 2, 64);
  {
    DataLoader loader(rows, {.batch_rows = 8, .workers = 2, .ahead = 1});
    loader.start(2, /*step=*/3);
    for (size_t taken = 1; loader.next(); ++taken) CHECK(rows.asked->count() <= (taken + 2) * 8);
  }
  CHECK(std::vector<size_t>(rows.asked->rows.begin(), rows.asked->rows.end()) == [&] {
    std::multiset<size_t> left(order.begin() + 24, order.end());
    return std::vector<size_t>(left.begin(), left.end());
  }());
  DataLoader loader(rows, {.batch_rows = 8});
  loader.start(2, 8);
  CHECK_FALSE(loader.next());
  loader.start(2);  // and in mid-epoch another one
  REQUIRE(loader.next());
  loader.start(3, 7);
  CHECK(loader.next()->rows == cut_order(0, 3, 64, 8)[7]);
  CHECK_FALSE(loader.next());
}

TEST_CASE("an exception of the data set names the row, in the step of that row") {
  const auto order = batch_order(0, 0, 24);
  const auto bad = static_cast<size_t>(order[10]);
  DataLoader loader(NoisyRows(24,
                              [bad](size_t row) {
                                if (row == bad) throw std::out_of_range("no such file");
                              }),
                    {.batch_rows = 8, .workers = 2});
  for (int run = 0; run < 2; ++run) {
    loader.start(0);
    CHECK(loader.next()->batch.has_value());
    try {
      loader.next();
      FAIL("nothing was thrown");
    } catch (const DataError& error) {
      CHECK(error.message() ==
            "row " + std::to_string(bad) + " of the data set cannot be read in epoch 0: no such file");
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
  }
  struct Uneven : torch::data::datasets::Dataset<Uneven, torch::Tensor> {
    torch::Tensor get(size_t row) override { return torch::ones({static_cast<int64_t>(row)}); }
    std::optional<size_t> size() const override { return 4; }
  };
  DataLoader uneven(Uneven(), {.batch_rows = 4});
  uneven.start(1);
  CHECK_THROWS_WITH(uneven.next(),
                    Catch::Matchers::StartsWith("the rows of step 0 in epoch 1 do not make a batch: "));
}

TEST_CASE("a step that failed fails again, the last one of an epoch too, until another start") {
  const auto order = batch_order(0, 0, 24);
  for (const size_t step : {1, 2}) {
    for (const int workers : {1, 3}) {
      INFO("step " << step << ", " << workers << " workers");
      const auto bad = static_cast<size_t>(order[step * 8 + 3]);
      bool throws = true;
      DataLoader loader(NoisyRows(24,
                                  [&throws, bad](size_t row) {
                                    if (row == bad && throws) throw std::out_of_range("no such file");
                                  }),
                        {.batch_rows = 8, .workers = workers});
      loader.start(0);
      for (size_t i = 0; i < step; ++i) CHECK(loader.next());
      for (int i = 0; i < 5; ++i) {  // more often than there are steps
        CHECK_THROWS_WITH(loader.next(), ContainsSubstring("no such file"));
      }
      loader.start(0, 3);  // ends the workers
      throws = false;
      loader.start(0, static_cast<int64_t>(step));
      CHECK(loader.next()->rows == cut_order(0, 0, 24, 8)[step]);
    }
  }
}

TEST_CASE("a replica without rows in the last step is not told of another replica's error") {
  const auto order = batch_order(0, 0, 5);
  const auto bad = static_cast<size_t>(order[4]);
  const NoisyRows rows(5, [bad](size_t row) {
    if (row == bad) throw std::out_of_range("no such file");
  });
  for (const int rank : {0, 1}) {
    INFO("rank " << rank);
    DataLoader loader(rows, {.batch_rows = 4, .rank = rank, .world = 2});
    loader.start(0);
    CHECK(loader.next()->batch.has_value());
    if (rank == 0) {
      CHECK_THROWS_WITH(loader.next(), ContainsSubstring("no such file"));
    } else {
      CHECK_FALSE(loader.next()->batch.has_value());
      CHECK_FALSE(loader.next());
    }
  }
}

TEST_CASE("loaders that make no sense are refused") {
  const std::vector<std::pair<DataLoaderOptions, std::string>> refused = {
      {{.batch_rows = 0}, "batch_rows is 0"},
      {{.world = 0}, "world is 0"},
      {{.rank = 2, .world = 2}, "rank is 2 in a world of 2"},
      {{.rank = -1}, "rank is -1 in a world of 1"},
      {{.workers = 0}, "workers is 0"},
      {{.workers = -1}, "workers is -1"},
      {{.ahead = 0}, "ahead is 0"},
      {{.world = 2, .split = {1}}, "1 share for 2 replicas"},
  };
  for (const auto& [options, what] : refused) {
    CHECK(refusal_of([&, &own = options] { DataLoader(NoisyRows(4), own); }) == what);
  }
  DataLoader loader(NoisyRows(10), {.batch_rows = 4});
  CHECK(refusal_of([&] { loader.next(); }) == "next() was called before start()");
  CHECK(refusal_of([&] { loader.start(0, 4); }) == "an epoch of 3 steps cannot start at step 4");
  CHECK(refusal_of([&] { loader.start(0, -1); }) == "an epoch of 3 steps cannot start at step -1");
  CHECK(refusal_of([&] { loader.start(-1); }) == "epoch -1 has no order, epochs count from 0");
  struct Endless : torch::data::datasets::Dataset<Endless, torch::Tensor> {
    torch::Tensor get(size_t) override { return torch::ones({}); }
    std::optional<size_t> size() const override { return std::nullopt; }
  };
  CHECK(refusal_of([] { DataLoader endless{Endless()}; }) == "the data set does not know its size");
}
