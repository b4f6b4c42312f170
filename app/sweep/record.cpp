#include <lockstep/app/sweep/record.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep sweep";
constexpr int kSweepVersion = 1;

// The figures of a cell, in the order of the file.
constexpr std::pair<const char*, double CellFigures::*> kFigures[] = {
    {"test_loss", &CellFigures::test_loss},
    {"train_loss", &CellFigures::train_loss},
    {"seconds_per_epoch", &CellFigures::seconds_per_epoch},
    {"images_per_second", &CellFigures::images_per_second}};

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataError(fmt::format("the sweep {} is damaged: {}", in_quotes(path), what),
                  "start another file: --json FILE");
}

// The key that files of version 0.1.0 have in their environment for this one.
std::string old_name(const std::string& key) { return key == "cpu" ? "processor" : key; }

std::string text_of(const std::string& path) {
  return read_json_file(path, "begin a sweep with --json FILE");
}

// Reads a whole number from 1 to `most`. A plain conversion would turn 4294967297 replicas and 1.9 epochs
// into 1.
template <class T>
void get_count(const Json& cell, const char* key, int64_t most, T& into) {
  const auto& value = cell.at(key);
  const bool whole = value.is_number_unsigned();
  if (!whole || value.get<uint64_t>() < 1 || value.get<uint64_t>() > static_cast<uint64_t>(most)) {
    throw JsonError(
        fmt::format("its \"{}\" is {}, not a whole number from 1 to {}", key, value.dump(), most));
  }
  into = static_cast<T>(value.get<uint64_t>());
}

// Throws Json::exception if a value is missing or of another type, JsonError if a number is out of range.
CellResult result_of(const Json& json) {
  CellResult result;
  auto& cell = result.cell;
  json.at("devices").get_to(cell.devices);
  get_count(json, "replicas", kMaxReplicas, cell.replicas);
  get_count(json, "threads", kMaxThreads, result.threads);
  get_count(json, "batch_size", kMaxRows * kMaxReplicas, cell.batch_size);  // with --scale-batch
  get_count(json, "epochs", kMaxEpochs, cell.epochs);
  json.at("lr").get_to(cell.lr);
  if (!(cell.lr > 0)) throw JsonError(fmt::format("its \"lr\" is {}, not above 0", json.at("lr").dump()));
  cell.given_lr = cell.lr;
  if (json.at("diverged").get<bool>()) return result;
  auto& figures = result.figures.emplace();
  for (const auto& [key, member] : kFigures) json.at(key).get_to(figures.*member);
  const auto& accuracy = json.at("accuracy");
  if (accuracy.is_null()) return result;
  figures.accuracy = accuracy.get<double>();
  if (!(*figures.accuracy >= 0 && *figures.accuracy <= 1)) {  // accuracy_margin() needs it
    throw JsonError(fmt::format("its \"accuracy\" is {}, not from 0 to 1", accuracy.dump()));
  }
  return result;
}

Json read_document(const std::string& path, const std::string& text) {
  Json document;
  try {
    document = parse_json(text);
  } catch (const JsonError& error) {
    damaged(path, fmt::format("it is {}", error.what()));
  }
  if (!document.is_object()) damaged(path, "it is not a JSON object");
  const auto format = document.value("format", Json());
  if (format != kFormat || document.value("version", Json()) != kSweepVersion) {
    throw DataError(
        fmt::format("{} is of format {}, version {}; expected \"{}\", version {}", in_quotes(path),
                    format.dump(), document.value("version", Json()).dump(), kFormat, kSweepVersion),
        "name a file that 'lockstep sweep --json FILE' has written");
  }
  for (const auto* key : {"command", "environment", "settings", "cells"}) {
    if (!document.contains(key)) damaged(path, fmt::format("it has no \"{}\"", key));
  }
  if (document.contains("resumed") && !document.at("resumed").is_array())
    damaged(path, "its \"resumed\" is not a list");
  return document;
}

// The value that a file has for it: bytes that are not UTF-8 are replaced there.
Json as_written(const Json& value) { return Json::parse(json_line(value)); }

// The value for a message: text in quotes, anything else as JSON.
std::string shown(const Json& value) {
  return value.is_string() ? in_quotes(value.get<std::string>()) : value.dump();
}

}  // namespace

SweepFile parse_sweep(const std::string& path, const std::string& text) {
  SweepFile file = {read_document(path, text), {}};
  auto& results = file.results;
  try {
    for (const auto& cell : file.document.at("cells")) results.push_back(result_of(cell));
  } catch (const Json::exception&) {
    damaged(path, fmt::format("cell {} is not a cell of a sweep", results.size() + 1));
  } catch (const JsonError& error) {
    damaged(path, fmt::format("cell {}: {}", results.size() + 1, error.what()));
  }
  const auto with_accuracy = std::ranges::count_if(
      results, [](const auto& result) { return result.figures && result.figures->accuracy; });
  const auto with_figures =
      std::ranges::count_if(results, [](const auto& result) { return result.figures.has_value(); });
  if (with_accuracy != 0 && with_accuracy != with_figures) {
    damaged(path, fmt::format("{} of {} cells have an accuracy", with_accuracy, with_figures));
  }
  return file;
}

Json json_of(const CellResult& result) {
  const auto& cell = result.cell;
  Json json{{"devices", cell.devices},
            {"replicas", cell.replicas},
            {"threads", result.threads},
            {"batch_size", cell.batch_size},
            {"lr", cell.lr},
            {"epochs", cell.epochs}};
  const auto& figures = result.figures;
  json["accuracy"] = figures && figures->accuracy ? Json(*figures->accuracy) : Json();
  for (const auto& [key, member] : kFigures) {
    json[key] = result.figures ? Json(*result.figures.*member) : Json();
  }
  json["diverged"] = !result.figures;
  return json;
}

SweepRecord::SweepRecord(std::string path, bool overwrite) : path_(std::move(path)), overwrite_(overwrite) {
  need_regular_file(*path_);
  const AtomicFile probe(*path_, overwrite);
}

SweepRecord SweepRecord::create(const std::string& path, bool overwrite) {
  std::error_code ignored;
  if (!overwrite && std::filesystem::is_regular_file(path, ignored)) {
    throw OutputError(fmt::format("{} already exists", in_quotes(path)),
                      fmt::format("continue it: --resume {}; or choose another name; or replace it: "
                                  "--overwrite",
                                  path));
  }
  return {path, overwrite};
}

SweepRecord SweepRecord::resume(const std::string& path) {
  auto text = text_of(path);
  auto [document, results] = parse_sweep(path, text);
  SweepRecord record(path, /*overwrite=*/true);
  record.resumed_ = true;
  record.kept_ = results.size();
  record.results_ = std::move(results);
  record.document_ = std::move(document);
  record.on_disk_ = std::move(text);
  return record;
}

void SweepRecord::begin(const Json& settings) {
  if (!resumed_) {
    document_ = {{"format", kFormat},         {"version", kSweepVersion},
                 {"command", command_line()}, {"environment", environment_json()},
                 {"settings", settings},      {"complete", false},
                 {"cells", Json::array()}};
    return;
  }
  const auto& theirs = document_.at("settings");
  if (!theirs.is_object()) damaged(*path_, "its \"settings\" are not an object");
  const auto ours = as_written(settings);
  for (const auto& [key, value] : ours.items()) {
    const auto their = theirs.value(key, Json());
    if (their == value) continue;
    throw UsageError(
        fmt::format("the sweep {} was made with {} {}, this command has {}", in_quotes(*path_), key,
                    shown(their), shown(value)),
        fmt::format("it was made by {}; start another file: --json FILE", shown(document_.at("command"))));
  }
  document_["resumed"].push_back(
      {{"command", command_line()}, {"environment", environment_json()}, {"kept", kept_}});
}

const CellResult* SweepRecord::find(const SweepCell& cell) const {
  const auto result = std::find_if(results_.begin(), results_.end(),
                                   [&](const auto& other) { return other.cell.is_same_point(cell); });
  return result == results_.end() ? nullptr : &*result;
}

std::optional<std::string> SweepRecord::other_environment() const {
  if (!resumed_) return std::nullopt;
  const auto& theirs = document_.at("environment");
  const auto here = as_written(environment_json());
  for (const auto& [key, ours] : here.items()) {
    const auto their =
        theirs.is_object() ? theirs.value(theirs.contains(key) ? key : old_name(key), Json()) : Json();
    if (key == "date" || key == "memory_bytes" || their == ours) continue;
    return fmt::format("{} {} there, {} here", key, shown(their), shown(ours));
  }
  return std::nullopt;
}

void SweepRecord::add(const CellResult& result) {
  results_.push_back(result);
  document_["complete"] = false;
  document_.erase("findings");  // of an earlier run, with fewer cells
  write();
}

void SweepRecord::finish(const std::vector<Finding>& findings) {
  document_["complete"] = true;
  document_["findings"] = Json::array();
  for (const auto& [sentence, values] : findings) {
    document_["findings"].push_back({{"sentence", sentence}, {"values", values}});
  }
  write();
}

void SweepRecord::write() {
  if (!path_) return;
  std::error_code ignored;
  if (on_disk_ && std::filesystem::exists(*path_, ignored) && text_of(*path_) != *on_disk_) {
    throw OutputError(fmt::format("{} was changed by another process during this sweep", in_quotes(*path_)),
                      fmt::format("give each sweep its own file; continue this one: --resume {}", *path_));
  }
  auto document = document_;
  document["cells"] = Json::array();
  for (const auto& result : results_) document["cells"].push_back(json_of(result));
  auto text = json_text(document);
  AtomicFile file(*path_, overwrite_ || on_disk_);
  file.write(text);
  file.commit();
  on_disk_ = std::move(text);
}

}  // namespace lockstep
