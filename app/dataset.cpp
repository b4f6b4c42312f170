#include <lockstep/app/dataset.h>

#include <fmt/format.h>

#include <lockstep/app/data_folder.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kSyntheticTrain = 60'000;
constexpr int64_t kSyntheticTest = 10'000;

}  // namespace

LoadedData load_data(const std::optional<std::string>& data, uint64_t seed,
                     std::optional<int64_t> limit_train) {
  const auto folder = data_folder(data);
  if (folder == kSyntheticData) {
    return {.set = make_synthetic(seed, limit_train.value_or(kSyntheticTrain), kSyntheticTest),
            .origin = fmt::format("made from seed {}", seed)};
  }
  LoadedData loaded{.set = load_fashion_mnist(folder), .origin = folder};
  if (!limit_train) return loaded;
  const auto rows = loaded.set.train.size();
  if (*limit_train > rows) {
    throw UsageError(
        fmt::format("--limit-train {} is more than the {} training images of {}", *limit_train, rows, folder),
        "leave it out to train on all of them");
  }
  loaded.set.train = first_rows(loaded.set.train, *limit_train);
  return loaded;
}

}  // namespace lockstep
