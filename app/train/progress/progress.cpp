#include <lockstep/app/train/progress/progress.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/files/json.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::vector<StepRange> read_ranges(const Json& json) {
  std::vector<StepRange> ranges;
  for (const auto& range : json) ranges.push_back({range.at(0).get<int64_t>(), range.at(1).get<int64_t>()});
  return ranges;
}

}  // namespace

bool TrainProgress::leaves_out(int64_t number) const {
  return std::any_of(left_out.begin(), left_out.end(),
                     [&](const auto& range) { return range.first <= number && number <= range.last; });
}

bool TrainProgress::leaves_out(StepRange numbers) const {
  for (auto number = numbers.first; number <= numbers.last; ++number) {
    if (!leaves_out(number)) return false;
  }
  return true;
}

Json to_json(const std::vector<StepRange>& ranges) {
  auto json = Json::array();
  for (const auto& range : ranges) json.push_back({range.first, range.last});
  return json;
}

Json to_json(const TrainProgress& progress) {
  return {{"epoch", progress.epoch},
          {"step", progress.step},
          {"epoch_seconds", progress.epoch_seconds},
          {"seconds", progress.seconds},
          {"lr", progress.lr},
          {"epoch_sums", to_json(progress.epoch_sums)},
          {"recorded_sums", to_json(progress.recorded_sums)},
          {"accuracy", progress.accuracy},
          {"left_out", to_json(progress.left_out)}};
}

TrainProgress read_progress(const Json& json) {
  try {
    TrainProgress progress;
    progress.epoch = json.at("epoch").get<int64_t>();
    progress.step = json.at("step").get<int64_t>();
    progress.epoch_seconds = json.at("epoch_seconds").get<double>();
    progress.seconds = json.at("seconds").get<double>();
    progress.lr = json.at("lr").get<double>();
    progress.epoch_sums = read_row_sums(json.at("epoch_sums"));
    progress.recorded_sums = read_row_sums(json.at("recorded_sums"));
    progress.accuracy = json.at("accuracy").get<std::vector<double>>();
    progress.left_out = read_ranges(json.at("left_out"));
    return progress;
  } catch (const Json::exception& error) {
    throw WeightsError(fmt::format("the checkpoint's progress cannot be read: {}", error.what()),
                       "take another checkpoint of the run");
  }
}

}  // namespace lockstep
