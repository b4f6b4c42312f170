// The file of a sweep. It holds the results so far, is rewritten after each cell, and is read by --resume.
//
//   {"format": "lockstep sweep", "version": 1, "command", "environment", "settings", "complete",
//    "cells": [{"devices", "replicas", "threads", "batch_size", "lr", "epochs", "accuracy", "test_loss",
//               "train_loss", "seconds_per_epoch", "images_per_second", "diverged"}],
//    "findings": [{"sentence", "values"}], "resumed": [{"command", "environment", "kept"}]}
//
// Figures of a cell that diverged are null, and so is the accuracy where the loss counts no classes.
// "command" and "environment" are of the first run; "resumed" has those of each later run, and how many cells
// the file held then. "complete" (whether all cells of the grid are there) and "findings" are of the last
// run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/report/finding.h>
#include <lockstep/app/report/report.h>
#include <lockstep/app/sweep/cell.h>

namespace lockstep {

class SweepRecord {
 public:
  // Keeps the results in memory only.
  SweepRecord() = default;

  // Begins a new file. Throws OutputError if it exists and `overwrite` is false, or cannot be written. The
  // file is written when the first cell is done.
  static SweepRecord create(const std::string& path, bool overwrite);

  // Continues a file. Throws DataError if it is missing, damaged or of another format, OutputError if it
  // cannot be written.
  static SweepRecord resume(const std::string& path);

  // settings: what all cells have in common. Throws UsageError if the continued file has other settings.
  void begin(const Json& settings);

  // Returns the cell's result, or null if there is none yet.
  const CellResult* find(const SweepCell& cell) const;
  size_t kept() const { return kept_; }  // number of results that the file held

  // Describes the first difference between the file's environment and this one. Empty if there is none.
  std::optional<std::string> other_environment() const;

  // Adds the result and writes the file. If another process has changed the file, leaves it as it is and
  // throws OutputError: two sweeps with one file would lose each other's cells.
  void add(const CellResult& result);
  void finish(const std::vector<Finding>& findings);

 private:
  SweepRecord(std::string path, bool overwrite);

  void write();

  std::optional<std::string> path_;
  bool overwrite_ = true;  // an existing file, when the first cell is done
  bool resumed_ = false;
  Json document_;  // without its cells
  std::vector<CellResult> results_;
  size_t kept_ = 0;
  std::optional<std::string> on_disk_;  // the file's text as this sweep last read or wrote it
};

// The contents of a sweep's file.
struct SweepFile {
  Json document;  // with its cells
  std::vector<CellResult> results;
};

// Parses the text of the file at `path`. Throws DataError if it is damaged or of another format.
SweepFile parse_sweep(const std::string& path, const std::string& text);

// A cell as in the file.
Json json_of(const CellResult& result);

}  // namespace lockstep
