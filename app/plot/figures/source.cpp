#include <lockstep/app/plot/figures/source.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep::plot {
namespace {

constexpr auto kTakes =
    "plot takes the folder of a run, and what these write: train --metrics; bench allreduce, scaling or "
    "overlap --json; sweep; eval --confusion --json";
// Larger numbers would overflow when an axis is computed.
constexpr double kLargestDrawn = 1e100;
constexpr double kSmallestDrawn = 1e-100;
constexpr int kVersion = 1;  // of all formats

constexpr std::array<std::pair<const char*, SourceKind>, 3> kBenches{{
    {"allreduce", SourceKind::kAllreduce},
    {"scaling", SourceKind::kScaling},
    {"overlap", SourceKind::kOverlap},
}};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw DataError(fmt::format("cannot draw {}: {}", in_quotes(path), what), kTakes);
}

bool blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// "an object with 'a', 'b', 'c', ..."
std::string shape_of(const Json& json) {
  if (!json.is_object()) return fmt::format("JSON, but a plain {}", json.type_name());
  std::string keys;
  int count = 0;
  for (const auto& item : json.items()) {
    if (++count > 4) return fmt::format("JSON of another kind, with {}, ...", keys);
    keys += fmt::format("{}{}", count > 1 ? ", " : "", in_quotes(item.key()));
  }
  return keys.empty() ? "an empty JSON object" : fmt::format("JSON of another kind, with {}", keys);
}

void check_version(const std::string& path, const std::string& format, const Json& json) {
  const auto version = json.value("version", Json());
  if (version == kVersion) return;
  refuse(path, fmt::format("it is {} of version {}, this lockstep reads version {}", format, version.dump(),
                           kVersion));
}

Source parse_bench(const std::string& path, Json json) {
  check_version(path, "a benchmark", json);
  const auto bench = json.value("bench", Json());
  for (const auto& [name, kind] : kBenches) {
    if (bench == name) return {path, kind, std::move(json)};
  }
  refuse(path, fmt::format("there is no picture of the benchmark {}",
                           in_quotes(bench.is_string() ? bench.get<std::string>() : bench.dump())));
}

Source parse_document(const std::string& path, Json json) {
  if (json.is_array() && !json.empty() && json.front().is_object() && json.front().contains("ph")) {
    throw DataError(fmt::format("cannot draw {}: it is a trace", in_quotes(path)),
                    "open it in ui.perfetto.dev or chrome://tracing");
  }
  if (!json.is_object()) refuse(path, fmt::format("it is {}", shape_of(json)));
  if (json.value("event", Json()) == "plan")
    return {path, SourceKind::kMetrics, Json::array({std::move(json)})};
  if (json.contains("confusion") && json.contains("test_rows")) {
    return {path, SourceKind::kConfusion, std::move(json)};
  }
  const auto format = json.value("format", Json());
  if (format == "lockstep bench") return parse_bench(path, std::move(json));
  if (format == "lockstep sweep") {
    check_version(path, "a sweep", json);
    return {path, SourceKind::kSweep, std::move(json)};
  }
  refuse(path, fmt::format("it is {}", shape_of(json)));
}

// Makes all texts printable and drops numbers that are too large to draw, as JSON drops infinite ones.
void make_drawable(Json& json) {
  if (json.is_string()) json = printable(json.get_ref<const std::string&>());
  if (json.is_number_float()) {
    const double size = std::abs(json.get<double>());
    if (size > kLargestDrawn) json = nullptr;
    if (size < kSmallestDrawn) json = 0.;
  }
  if (!json.is_structured()) return;
  for (auto& item : json) make_drawable(item);
}

// Throws JsonError.
Json parse(const std::string& text) {
  auto json = parse_json(text);
  make_drawable(json);
  return json;
}

// Returns true for a last line that is incomplete, because its run is still writing or was killed.
bool cut_short(const std::string& line, bool last) { return last && !Json::accept(line); }

Source parse_lines(const std::string& path, const std::string& text) {
  Source source{.path = path, .kind = SourceKind::kMetrics, .json = Json::array()};
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (blank(line)) continue;
    source.cut_short = cut_short(line, in.eof());
    if (source.cut_short) break;
    const auto no_object = [&](const std::string& why) {
      refuse(path, fmt::format("its line {} is not a whole JSON object{}", number, why));
    };
    Json json;
    try {
      json = parse(line);
    } catch (const JsonError& error) {
      no_object(fmt::format(" ({})", error.what()));
    }
    if (!json.is_object()) no_object("");
    if (source.json.empty() && json.value("event", Json()) != "plan") {
      refuse(path, fmt::format("its lines are {}, and the first is not the plan of a run", shape_of(json)));
    }
    source.json.push_back(std::move(json));
  }
  return source;
}

}  // namespace

std::string describe(SourceKind kind) {
  if (kind == SourceKind::kMetrics) return "the metrics of a run (train --metrics)";
  if (kind == SourceKind::kSweep) return "a sweep";
  if (kind == SourceKind::kConfusion) return "a test with its confusion (eval --confusion --json)";
  const auto bench =
      std::find_if(kBenches.begin(), kBenches.end(), [&](const auto& entry) { return entry.second == kind; });
  return fmt::format("a benchmark (bench {} --json)", bench->first);
}

Source read_source(const std::string& path) {
  std::error_code ignored;
  const bool run = std::filesystem::is_directory(path, ignored);
  const auto file = run ? (std::filesystem::path(path) / kMetricsJsonl).string() : path;
  return parse_source(path, read_json_file(file, kTakes));
}

Source parse_source(const std::string& path, const std::string& text) {
  if (blank(text)) refuse(path, "it is empty");
  // One document over many lines, or one document per line.
  std::string problem;
  try {
    return parse_document(path, parse(text));
  } catch (const JsonError& error) {
    problem = error.what();
  }
  const auto first_line = text.substr(0, text.find('\n'));
  const bool lines = Json::accept(first_line) && first_line.size() < text.size();
  if (lines) return parse_lines(path, text);
  const auto first = text[text.find_first_not_of(" \t\r\n")];
  if (first != '{' && first != '[') refuse(path, "it is not JSON");
  refuse(path, fmt::format("it is damaged or cut short: {}", problem));
}

void nothing_to_draw(const Source& source, const std::string& what) {
  throw DataError(fmt::format("{} holds no {}, so there is nothing to draw", in_quotes(source.path), what),
                  "a run that was stopped early has none; run it again");
}

std::vector<Json> rows_of(const Source& bench, const std::string& table) {
  std::vector<Json> rows;
  for (const auto& candidate : bench.json.at("tables")) {
    if (candidate.at("name") != table) continue;
    for (const auto& row : candidate.at("rows")) rows.push_back(row);
  }
  return rows;
}

std::optional<double> number_at(const Json& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return std::nullopt;
  return found->get<double>();
}

std::vector<Json> events_of(const Source& metrics, const std::string& event) {
  std::vector<Json> events;
  for (const auto& line : metrics.json) {
    if (line.value("event", Json()) == event) events.push_back(line);
  }
  return events;
}

std::string last_name(const std::string& path) {
  std::error_code ignored;
  auto whole = std::filesystem::path(path);
  if (std::filesystem::is_directory(whole, ignored)) whole = std::filesystem::canonical(whole, ignored);
  return whole.filename().string();
}

void name_sources(std::vector<Source>& sources) {
  const auto file_of = [](const Source& source) { return last_name(source.path); };
  for (auto& source : sources) {
    const auto same = std::count_if(sources.begin(), sources.end(),
                                    [&](const auto& other) { return file_of(other) == file_of(source); });
    source.name = printable(same > 1 ? source.path : file_of(source));
  }
}

std::string printable(const std::string& text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; })) return text;
  // Writing and parsing JSON turns invalid UTF-8 into U+FFFD.
  auto clean = Json::parse(json_line(text)).get<std::string>();
  for (auto& character : clean) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) character = '?';
  }
  for (const auto* no_character : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {  // U+FFFE and U+FFFF
    for (size_t at = 0; (at = clean.find(no_character, at)) != std::string::npos;) clean.replace(at, 3, "?");
  }
  return clean;
}

}  // namespace lockstep::plot
