#include <lockstep/app/sweep/grid.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/split_text.h>

namespace lockstep {
namespace {

constexpr const char* kOnce = "leave one out: each cell is trained once";

// Converts a list that the flag's check has accepted, as CLI11 converts the single value of `train`.
template <class T>
std::vector<T> values_of(const std::string& list, const std::string& flag) {
  std::vector<T> values;
  std::vector<std::string> texts;  // equal values have equal texts
  for (const auto part : split_text(list, ',')) {
    const std::string word(part);
    T value{};
    if (!CLI::detail::lexical_cast(word, value)) {
      throw UsageError(fmt::format("{} does not accept '{}'", flag, word));
    }
    values.push_back(value);
    texts.push_back(fmt::format("{}", value));
  }
  need_distinct(texts, flag, kOnce);
  return values;
}

template <class T>
std::vector<T> axis(const std::optional<std::string>& list, T otherwise, const std::string& flag) {
  return list ? values_of<T>(*list, flag) : std::vector<T>{otherwise};
}

struct DeviceList {
  std::string spec;
  int replicas = 1;
};

// Two specs of the same list ("cpu", "cpux1") count as the same value.
std::vector<DeviceList> device_axis(const std::vector<std::string>& specs) {
  std::vector<DeviceList> lists;
  std::vector<std::string> names;
  for (const auto& spec : specs.empty() ? std::vector<std::string>{"auto"} : specs) {
    const auto devices = usable_devices(spec);
    lists.push_back({.spec = spec_of(devices), .replicas = static_cast<int>(devices.size())});
    names.push_back(lists.back().spec);
  }
  need_distinct(names, "--devices", kOnce);
  return lists;
}

}  // namespace

std::vector<SweepCell> make_grid(const SweepOptions& options) {
  const auto& recipe = recipe_of(options.train);
  const auto lists = device_axis(options.devices);
  const auto batch_sizes = axis<int64_t>(options.batch_size, recipe.batch_size, "--batch-size");
  const auto rates =
      axis<double>(options.lr, rate_of(recipe, options.train.trainer.replica.optimizer.kind), "--lr");
  const auto epochs = axis<int64_t>(options.epochs, recipe.epochs, "--epochs");
  std::vector<SweepCell> cells;
  for (const auto& list : lists) {
    // As in `train`: a given value is used as it is; a recipe's value may be per device.
    const auto times = [&](bool given) -> int64_t {
      return options.scale_batch || (!given && recipe.per_device) ? list.replicas : 1;
    };
    for (const auto batch_size : batch_sizes) {
      for (const auto lr : rates) {
        for (const auto count : epochs) {
          cells.push_back({.devices = list.spec,
                           .replicas = list.replicas,
                           .batch_size = batch_size * times(options.batch_size.has_value()),
                           .lr = lr * static_cast<double>(times(options.lr.has_value())),
                           .epochs = count,
                           .given_lr = lr});
        }
      }
    }
  }
  return cells;
}

std::string grid_text(const SweepOptions& options) {
  const auto size = [](const std::optional<std::string>& list) {
    return static_cast<int64_t>(list ? split_text(*list, ',').size() : 1);
  };
  const auto lists = static_cast<int64_t>(std::max<size_t>(options.devices.size(), 1));
  const std::pair<int64_t, const char*> axes[] = {{lists, "device list"},
                                                  {size(options.batch_size), "batch size"},
                                                  {size(options.lr), "learning rate"},
                                                  {size(options.epochs), "epoch count"}};
  int64_t cells = 1;
  std::vector<std::string> parts;
  for (const auto& [count, name] : axes) {
    cells *= count;
    if (count == 1) continue;
    parts.push_back(counted(count, name));
  }
  const auto of = parts.empty() ? "" : fmt::format(": {}", fmt::join(parts, " x "));
  return counted(cells, "cell") + of;
}

TrainFlags train_options(const SweepOptions& options, const SweepCell& cell) {
  auto train = options.train;
  train.devices = cell.devices;
  train.batch_size = cell.batch_size;
  train.lr = cell.lr;
  train.epochs = cell.epochs;
  return train;
}

}  // namespace lockstep
