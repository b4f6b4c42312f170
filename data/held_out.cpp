#include <lockstep/data/held_out.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <memory>
#include <span>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>
#include <lockstep/support/random_streams.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {
namespace {

// Some rows of another source.
class SubsetSource : public BatchSource {
 public:
  SubsetSource(std::shared_ptr<const BatchSource> all, std::shared_ptr<const std::vector<int64_t>> numbers,
               torch::Device device)
      : all_(std::move(all)),
        numbers_(std::move(numbers)),
        on_device_(torch::tensor(*numbers_, torch::kInt64).to(device)) {}

  int64_t size() const override { return static_cast<int64_t>(numbers_->size()); }
  BatchSpec spec() const override { return all_->spec(); }
  bool can_be_captured() const override { return all_->can_be_captured(); }
  std::string settings() const override { return all_->settings(); }

  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    all_->gather(on_device_.index_select(0, rows), epoch, into);
  }

  void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
    std::vector<int64_t> wanted;
    for (const auto row : rows) {
      if (row < 0 || row >= size()) continue;  // the step that asks for it is refused
      wanted.push_back((*numbers_)[static_cast<size_t>(row)]);
    }
    all_->will_need(wanted, epoch);
  }

 private:
  const std::shared_ptr<const BatchSource> all_;
  const std::shared_ptr<const std::vector<int64_t>> numbers_;
  const torch::Tensor on_device_;
};

}  // namespace

bool is_held_out(uint64_t seed, int64_t row, double share) {
  SplitMix64 draws(seed, {kHeldOutStream, static_cast<uint64_t>(row)});
  return static_cast<double>(draws.next() >> 11) * 0x1p-53 < share;
}

DataRows subset_of(const DataRows& rows, std::vector<int64_t> numbers) {
  const auto shared = std::make_shared<const std::vector<int64_t>>(std::move(numbers));
  DataRows subset{.rows = static_cast<int64_t>(shared->size())};
  subset.sources = [all = rows.sources, shared](torch::Device device) {
    return std::make_shared<SubsetSource>(all(device), shared, device);
  };
  if (rows.hash_of_first) {
    subset.hash_of_first = [rows, shared](int64_t count) {
      const auto first = std::as_bytes(std::span(*shared).first(static_cast<size_t>(count)));
      return fmt::format("{}-{:016x}", rows.hash_of_first(rows.rows), xxhash64(first));
    };
  }
  if (rows.labels) {
    subset.labels = [all = rows.labels, shared] {
      const auto labels = all();
      std::vector<int64_t> chosen;
      for (const auto row : *shared) chosen.push_back(labels[static_cast<size_t>(row)]);
      return chosen;
    };
  }
  return subset;
}

void hold_out(TrainingData& data, double share, uint64_t seed) {
  std::vector<int64_t> trained, held_out;
  for (int64_t row = 0; row < data.train.rows; ++row) {
    (is_held_out(seed, row, share) ? held_out : trained).push_back(row);
  }
  if (trained.empty() || held_out.empty()) {
    throw UsageError(
        fmt::format("a validation share of {} of {} training {}s leaves {} to train on and {} to "
                    "validate with",
                    share, data.train.rows, data.row_noun, trained.size(), held_out.size()),
        "choose another share, or use more rows");
  }
  auto validated = data.train;
  if (validated.held_out) validated.sources = std::move(validated.held_out);
  data.validation = subset_of(validated, std::move(held_out));
  data.train = subset_of(data.train, std::move(trained));
}

}  // namespace lockstep
