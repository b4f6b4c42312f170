// An exported program as its file says: graphs, weights, constants. Checked, but nothing of torch is looked
// up yet.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/models/program/archive.h>
#include <lockstep/models/program/graph.h>

namespace lockstep::program {

struct ProgramFile {
  std::shared_ptr<const Archive> archive;                      // mapped as long as this lives
  std::string digest;                                          // SHA-256 of the file, 64 digits
  std::map<std::string, ExportedGraph> graphs;                 // "model" is always there, "eval" may be
  std::vector<StoredTensor> weights;                           // state_dict, in its order; tied ones repeated
  std::map<std::string, std::vector<StoredTensor>> constants;  // per graph: constants and passing buffers
  std::vector<RowReport> row_reports;  // of extra/lockstep.json; empty: not exported by lockstep's script
  // The records of the other graphs' weights ("eval" stores all again): record -> name of the weight. Their
  // bytes are those of the weight, at the same strides and offset.
  std::map<std::string, std::string> weight_copies;
};

// Throws WeightsError (exit code 4) with the path and what is wrong: no zip, damaged, another format, schema
// (both numbers) or dialect, an operation that is not allowed (with its line of Python). Nothing in the file
// is run, and no pickle is read: sample inputs are left alone. Checks the CRC-32 of every record.
ProgramFile read_program_file(const std::filesystem::path& path);

}  // namespace lockstep::program
