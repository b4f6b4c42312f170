// The file of a sweep: what has been trained so far, rewritten after each cell, and read again to go on.
//
//   {"format": "lockstep sweep", "version": 1, "command", "environment", "settings", "complete",
//    "cells": [{"devices", "replicas", "threads", "batch_size", "lr", "epochs", "accuracy", "test_loss",
//               "train_loss", "seconds_per_epoch", "images_per_second", "diverged"}],
//    "findings": [{"sentence", "values"}], "resumed": [{"command", "environment", "kept"}]}
//
// Figures of a cell that diverged are null. command and environment are those of the sweep's first part;
// "resumed" has a later part's, and how many cells it found there. "complete" and "findings" are the last
// command's: whether all cells of its grid are there, and what they show.
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
  // Without a file: the results are kept in memory alone.
  SweepRecord() = default;

  // A file that is to be made. Throws OutputError where it exists and `overwrite` is not set, or could not be
  // written; it is touched only when the first cell is done.
  static SweepRecord create(const std::string& path, bool overwrite);

  // A file to go on with. Throws DataError where it is missing, damaged or of another format, OutputError
  // where it could not be written.
  static SweepRecord resume(const std::string& path);

  // settings: what all cells share. Throws UsageError, with both values, where a file that is gone on with
  // was made with others.
  void begin(const Json& settings);

  // The cell's result, where the file or an earlier cell has it.
  const CellResult* find(const SweepCell& cell) const;
  size_t kept() const { return kept_; }  // results that the file held

  // The first value of the machine's description that is another than here, in words; empty where there is
  // none.
  std::optional<std::string> other_environment() const;

  // Adds the result and writes the file. Throws OutputError, and leaves the file alone, where somebody else
  // has changed it since: two sweeps with one file would lose each other's cells.
  void add(const CellResult& result);
  void finish(const std::vector<Finding>& findings);

 private:
  SweepRecord(std::string path, bool overwrite);

  void write();

  std::optional<std::string> path_;
  bool overwrite_ = true;  // what stands there before the first cell is done
  bool resumed_ = false;
  Json document_;  // but for its cells
  std::vector<CellResult> results_;
  size_t kept_ = 0;
  std::optional<std::string> on_disk_;  // what the file holds, as far as this sweep knows
};

// What a sweep's file holds.
struct SweepFile {
  Json document;  // with its cells
  std::vector<CellResult> results;
};

// Reads the text of the file at `path`. Throws DataError where it is damaged or of another format.
SweepFile parse_sweep(const std::string& path, const std::string& text);

// A cell as the file has it.
Json json_of(const CellResult& result);

}  // namespace lockstep
