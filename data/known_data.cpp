#include <lockstep/data/known_data.h>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/data/synthetic.h>

namespace lockstep {
namespace {

constexpr std::array kKnownData = {
    KnownData{.name = "synthetic",
              .train_rows = 60'000,
              .test_rows = 10'000,
              .make =
                  [](uint64_t seed, int64_t train_rows, int64_t test_rows) {
                    return as_training_data(make_synthetic(seed, train_rows, test_rows));
                  }},
};

std::vector<int64_t> values_of(const torch::Tensor& labels) {
  const auto* const first = labels.const_data_ptr<uint8_t>();
  return {first, first + labels.numel()};
}

DataRows rows_of(const ImageSet& set) {
  return {.rows = set.size(),
          .sources = resident_images(set),
          .hash_of_first = [set](int64_t count) { return hash_of(first_rows(set, count)); },
          .labels = [labels = set.labels] { return values_of(labels); }};
}

}  // namespace

TrainingData as_training_data(const Dataset& set) {
  return {.name = set.name,
          .spec = {{.name = "images",
                    .dtype = torch::kUInt8,
                    .row_shape = set.train.images.sizes().slice(1).vec()},
                   {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}},
          .classes = set.classes,
          .class_names = set.class_names,
          .row_noun = "image",
          .train = rows_of(set.train),
          .test = rows_of(set.test)};
}

std::span<const KnownData> known_data() { return kKnownData; }

const KnownData* find_known_data(std::string_view name) {
  const auto* const found = std::ranges::find(kKnownData, name, &KnownData::name);
  return found == kKnownData.end() ? nullptr : found;
}

}  // namespace lockstep
