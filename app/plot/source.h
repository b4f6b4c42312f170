// A file that lockstep has written, given to plot: which kind it is, and what it holds.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::plot {

using Json = nlohmann::ordered_json;

enum class SourceKind { kMetrics, kAllreduce, kScaling, kOverlap, kSweep };

// "a benchmark of allreduce (bench allreduce --json)"
std::string describe(SourceKind kind);

struct Source {
  std::string path = {};
  SourceKind kind = SourceKind::kMetrics;
  Json json = {};          // the document; of kMetrics an array of its lines
  std::string name = {};   // in a picture, see name_sources()
  bool cut_short = false;  // the last line of kMetrics was not whole, and is left out
};

// All texts in it are printable(), all numbers can be drawn: none is beyond 1e100. Throws DataError, which
// says what the file is and what plot takes: missing, empty, cut short within a line that is not the last of
// many, no JSON, of another schema, a benchmark that has no picture.
Source read_source(const std::string& path);

// The same for a text that is there already; `path` for its messages.
Source parse_source(const std::string& path, const std::string& text);

// Throws DataError: the file is sound, but holds no such thing.
[[noreturn]] void nothing_to_draw(const Source& source, const std::string& what);

// The rows of all tables of this name of a benchmark.
std::vector<Json> rows_of(const Source& bench, const std::string& table);

// The number under this key; nothing where there is none or it is null: not measured.
std::optional<double> number_at(const Json& row, const std::string& key);

// The lines of a metrics file with this event.
std::vector<Json> events_of(const Source& metrics, const std::string& event);

// Names the sources by their files without the folders, or by whole paths where two files have one name; as
// well-formed UTF-8.
void name_sources(std::vector<Source>& sources);

// Well-formed UTF-8 without control characters, which fonts and XML do not have.
std::string printable(const std::string& text);

}  // namespace lockstep::plot
