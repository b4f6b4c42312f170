#include <lockstep/app/train/progress/run_position.h>

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

bool RunPosition::leaves_out(int64_t number) const {
  return std::any_of(left_out.begin(), left_out.end(),
                     [&](const auto& range) { return range.first <= number && number <= range.last; });
}

bool RunPosition::leaves_out(StepRange numbers) const {
  for (auto number = numbers.first; number <= numbers.last; ++number) {
    if (!leaves_out(number)) return false;
  }
  return true;
}

int64_t RunPosition::epochs_since_best() const {
  if (validation.empty()) return 0;
  return validation.end() - std::max_element(validation.begin(), validation.end()) - 1;
}

Json to_json(const std::vector<StepRange>& ranges) {
  auto json = Json::array();
  for (const auto& range : ranges) json.push_back({range.first, range.last});
  return json;
}

Json to_json(const RunPosition& position) {
  Json json{{"epoch", position.epoch},
            {"step", position.step},
            {"epoch_seconds", position.epoch_seconds},
            {"seconds", position.seconds},
            {"lr", position.lr},
            {"epoch_sums", to_json(position.epoch_sums)},
            {"recorded_sums", to_json(position.recorded_sums)},
            {"epoch_skipped", position.epoch_skipped},
            {"recorded_skipped", position.recorded_skipped},
            {"accuracy", position.accuracy},
            {"left_out", to_json(position.left_out)}};
  if (!position.validation.empty()) json["validation"] = position.validation;  // as earlier versions
  return json;
}

RunPosition read_position(const Json& json) {
  try {
    RunPosition position;
    position.epoch = json.at("epoch").get<int64_t>();
    position.step = json.at("step").get<int64_t>();
    position.epoch_seconds = json.at("epoch_seconds").get<double>();
    position.seconds = json.at("seconds").get<double>();
    position.lr = json.at("lr").get<double>();
    position.epoch_sums = read_row_sums(json.at("epoch_sums"));
    position.recorded_sums = read_row_sums(json.at("recorded_sums"));
    position.epoch_skipped = json.value("epoch_skipped", int64_t{0});  // earlier versions have none
    position.recorded_skipped = json.value("recorded_skipped", int64_t{0});
    position.accuracy = json.at("accuracy").get<std::vector<double>>();
    position.validation = json.value("validation", std::vector<double>());
    position.left_out = read_ranges(json.at("left_out"));
    return position;
  } catch (const Json::exception& error) {
    throw WeightsError(fmt::format("the checkpoint's progress cannot be read: {}", error.what()),
                       "take another checkpoint of the run");
  }
}

}  // namespace lockstep
