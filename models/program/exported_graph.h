// Reads one graph of the file: models/NAME.json.
#pragma once

#include <string_view>

#include <lockstep/models/program/graph.h>

namespace lockstep::program {

// The schema that torch 2.12 to 2.15 write.
constexpr int kSchemaMajor = 8, kSchemaMinor = 20;

// Throws FormatError for another schema or dialect, operations that are not allowed, and what
// exported_graph.cpp names.
ExportedGraph read_exported_graph(std::string_view text);

}  // namespace lockstep::program
