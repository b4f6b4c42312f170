// Reads the files that lockstep writes, for plot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/json.h>

namespace lockstep::plot {

enum class SourceKind { kMetrics, kAllreduce, kScaling, kOverlap, kSweep, kConfusion };

// "a benchmark of allreduce (bench allreduce --json)"
std::string describe(SourceKind kind);

struct Source {
  std::string path = {};
  SourceKind kind = SourceKind::kMetrics;
  Json json = {};          // the document; for kMetrics an array of the lines
  std::string name = {};   // in the picture; see name_sources()
  bool cut_short = false;  // kMetrics: the last line was incomplete and is left out
};

// Reads a file. All its texts are printable() and no number is beyond 1e100, so that all can be drawn. Throws
// DataError if the file is missing, empty, damaged, not JSON, of another format, or a benchmark without a
// picture.
Source read_source(const std::string& path);

// The same for the text of a file. `path`: for messages.
Source parse_source(const std::string& path, const std::string& text);

// Throws DataError: the file holds no `what`.
[[noreturn]] void nothing_to_draw(const Source& source, const std::string& what);

// The rows of all tables of this name.
std::vector<Json> rows_of(const Source& bench, const std::string& table);

// The number under this key. Empty if it is missing or null (not measured).
std::optional<double> number_at(const Json& row, const std::string& key);

// The lines of a metrics file with this event.
std::vector<Json> events_of(const Source& metrics, const std::string& event);

// Names the sources by their file names, or by their paths if two file names are equal. Names are well-formed
// UTF-8.
void name_sources(std::vector<Source>& sources);

// The name of a file, or of a folder: "digits" for "digits/" and for "." there.
std::string last_name(const std::string& path);

// Returns the text as well-formed UTF-8 without control characters, which fonts and XML lack.
std::string printable(const std::string& text);

}  // namespace lockstep::plot
