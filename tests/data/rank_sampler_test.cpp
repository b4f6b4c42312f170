#include <torch/data.h>
#include <torch/serialize.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <sstream>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/rank_sampler.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

using Batches = std::vector<std::vector<int64_t>>;

// The rows of a data set whose row i holds i, as a loop with a DataLoader sees them: of each step, its own.
Batches own_batches(const RankSampler& sampler, int64_t rows, int epochs, size_t workers,
                    int64_t first_step = 0) {
  auto loader =
      torch::data::make_data_loader(torch::data::datasets::TensorDataset(torch::arange(rows))
                                        .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
                                    sampler, torch::data::DataLoaderOptions().workers(workers));
  Batches batches;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    auto batch = loader->begin();
    for (int64_t step = epoch == 0 ? first_step : 0; step < sampler.steps(); ++step) {
      auto& own = batches.emplace_back();
      if (sampler.own_rows(step) == 0) continue;
      const auto& data = batch->data;
      own.assign(data.const_data_ptr<int64_t>(), data.const_data_ptr<int64_t>() + data.numel());
      CHECK(data.numel() == sampler.own_rows(step));
      ++batch;
    }
    CHECK(batch == loader->end());
  }
  return batches;
}

// The global batches of these epochs, by hand.
Batches cut_orders(uint64_t seed, int first_epoch, int epochs, int64_t rows, int64_t batch_rows) {
  Batches batches;
  for (int epoch = first_epoch; epoch < first_epoch + epochs; ++epoch) {
    const auto order = batch_order(seed, epoch, rows);
    for (int64_t row = 0; row < rows; ++row) {
      if (row % batch_rows == 0) batches.emplace_back();
      batches.back().push_back(order[static_cast<size_t>(row)]);
    }
  }
  return batches;
}

}  // namespace

TEST_CASE("loaders of all ranks together give the global batches of batch_order, for any number of ranks") {
  constexpr int kEpochs = 2;
  for (const auto& [rows, batch_rows] :
       std::vector<std::pair<int64_t, int64_t>>{{29, 8}, {24, 8}, {17, 8}, {5, 8}, {3, 1}, {1, 7}, {0, 4}}) {
    const auto expected = cut_orders(/*seed=*/7, /*first_epoch=*/3, kEpochs, rows, batch_rows);
    for (int world = 1; world <= 8; ++world) {
      for (const size_t workers : {0, 2}) {
        if (workers > 0 && world % 3 != 2) continue;  // these start threads
        INFO(rows << " rows in batches of " << batch_rows << ", " << world << " ranks, " << workers
                  << " workers");
        Batches found(expected.size());
        for (int rank = 0; rank < world; ++rank) {
          const RankSampler sampler({.rows = rows,
                                     .batch_rows = batch_rows,
                                     .rank = rank,
                                     .world = world,
                                     .seed = 7,
                                     .first_epoch = 3});
          const auto own = own_batches(sampler, rows, kEpochs, workers);
          REQUIRE(own.size() == expected.size());  // steps, the same on all ranks
          for (size_t step = 0; step < own.size(); ++step) {
            found[step].insert(found[step].end(), own[step].begin(), own[step].end());
            CHECK(sampler.batch_rows(static_cast<int64_t>(step) % sampler.steps()) ==
                  static_cast<int64_t>(expected[step].size()));
          }
        }
        CHECK(found == expected);  // in rank order, each row once
      }
    }
  }
}

TEST_CASE("the shards of a batch differ by one row at most, and ranks beyond its rows have none") {
  const auto rows_of = [](int rank, int64_t step) {
    return RankSampler({.rows = 11, .batch_rows = 8, .rank = rank, .world = 5}).own_rows(step);
  };
  const std::vector<std::vector<int64_t>> expected = {{2, 2, 2, 1, 1}, {1, 1, 1, 0, 0}};  // by hand
  for (int64_t step = 0; step < 2; ++step) {
    for (int rank = 0; rank < 5; ++rank) {
      INFO("step " << step << ", rank " << rank);
      CHECK(rows_of(rank, step) == expected[static_cast<size_t>(step)][static_cast<size_t>(rank)]);
    }
  }
}

TEST_CASE("each reset after the first starts another epoch, with other rows if it says so") {
  RankSampler sampler({.rows = 40, .batch_rows = 40});
  const auto next = [&] {
    const auto rows = sampler.next(1);
    return rows ? std::vector<int64_t>(rows->begin(), rows->end()) : std::vector<int64_t>();
  };
  CHECK(next() == batch_order(0, 0, 40));
  CHECK(next().empty());
  sampler.reset();
  CHECK(next() == batch_order(0, 0, 40));
  sampler.reset();
  CHECK(next() == batch_order(0, 1, 40));
  sampler.reset(30);
  CHECK(sampler.batch_rows(0) == 30);
  CHECK(next() == batch_order(0, 2, 30));
}

TEST_CASE("a sampler that is saved within an epoch goes on there") {
  const RankSamplerOptions options{.rows = 21, .batch_rows = 4, .rank = 1, .world = 3, .seed = 2};
  RankSampler saved(options), loaded(options);
  for (int begin = 0; begin < 3; ++begin) saved.reset();
  saved.next(1);
  torch::serialize::OutputArchive out;
  saved.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  torch::serialize::InputArchive in;
  in.load_from(bytes);
  loaded.load(in);
  for (int step = 0; step < 5; ++step) CHECK(loaded.next(1) == saved.next(1));
  CHECK_FALSE(loaded.next(1));
  saved.reset();
  loaded.reset();
  CHECK(loaded.next(1) == saved.next(1));
}

TEST_CASE("loaders go on within an epoch: by first_step, and from a loaded place once") {
  const RankSamplerOptions options{.rows = 21, .batch_rows = 4, .rank = 1, .world = 3, .seed = 2};
  const auto whole = own_batches(RankSampler(options), 21, /*epochs=*/4, /*workers=*/0);
  constexpr size_t kSteps = 6;
  for (const size_t workers : {0, 1}) {
    for (int64_t step = 0; step <= 6; ++step) {
      INFO("from step " << step << ", " << workers << " workers");
      auto from = options;
      from.first_epoch = 1;
      from.first_step = step;
      RankSampler saved(from), loaded(options);
      torch::serialize::OutputArchive out;
      saved.reset();
      saved.save(out);
      std::stringstream bytes;
      out.save_to(bytes);
      torch::serialize::InputArchive in;
      in.load_from(bytes);
      loaded.load(in);
      const Batches expected(whole.begin() + static_cast<int64_t>(kSteps) + step, whole.end());
      for (const auto& sampler : {RankSampler(from), loaded}) {
        CHECK(own_batches(sampler, 21, /*epochs=*/3, workers, step) == expected);
      }
    }
  }
}

TEST_CASE("values that make no sense are refused") {
  const auto refused = [](RankSamplerOptions options, const char* what) {
    CHECK_THROWS_WITH(RankSampler(options), what);
  };
  refused({.rows = -1}, "rows is -1");
  refused({.batch_rows = 4}, "rows is -1");
  refused({.rows = 3, .batch_rows = 0}, "batch_rows is 0");
  refused({.rows = 3, .world = 0}, "world is 0");
  refused({.rows = 3, .rank = 2, .world = 2}, "rank is 2 in a world of 2");
  refused({.rows = 3, .rank = -1}, "rank is -1 in a world of 1");
  refused({.rows = 3, .first_epoch = -1}, "first_epoch is -1");
  refused({.rows = 3, .first_step = -1}, "first_step is -1");
  const RankSampler sampler({.rows = 10, .batch_rows = 4});
  CHECK_THROWS_AS(sampler.own_rows(-1), UsageError);
  CHECK_THROWS_WITH(sampler.batch_rows(3), "there is no step 3 in an epoch of 3");
  auto loader = torch::data::make_data_loader(torch::data::datasets::TensorDataset(torch::arange(10)),
                                              sampler, torch::data::DataLoaderOptions(/*batch_size=*/4));
  CHECK_THROWS_WITH(*loader->begin(),
                    ContainsSubstring("batch_size is 4, but RankSampler makes batches of 4"));
}
