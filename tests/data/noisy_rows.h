// A data set whose rows are random, for tests of what reads a torch::data Dataset.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/example.h>
#include <torch/data/transforms/lambda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace lockstep::testing {

// The rows that were read, by all copies of a data set.
struct Asked {
  std::mutex mutex;
  std::multiset<size_t> rows;

  size_t count() {
    const std::lock_guard lock(mutex);
    return rows.size();
  }
};

using Example = torch::data::Example<>;

// Row i is {three random numbers, i}.
class NoisyRows : public torch::data::datasets::Dataset<NoisyRows> {
 public:
  explicit NoisyRows(
      size_t rows, std::function<void(size_t row)> before = [](size_t) {})
      : rows_(rows), before_(std::move(before)) {}

  Example get(size_t row) override {
    before_(row);
    {
      const std::lock_guard lock(asked->mutex);
      asked->rows.insert(row);
    }
    return {torch::rand({3}), torch::tensor(static_cast<int64_t>(row))};
  }
  std::optional<size_t> size() const override { return rows_; }

  std::shared_ptr<Asked> asked = std::make_shared<Asked>();

 private:
  size_t rows_;
  std::function<void(size_t)> before_;
};

// The same with a transform that draws, too, of each row.
inline auto augmented(NoisyRows rows) {
  const auto flip = [](Example row) {
    return torch::rand({}).item<float>() < .5f ? Example(row.data.flip(0), row.target) : row;
  };
  return std::move(rows).map(torch::data::transforms::Lambda<Example>(flip));
}

}  // namespace lockstep::testing
