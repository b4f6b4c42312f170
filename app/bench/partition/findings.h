// States in sentences what the figures of `bench partition` show, and compares them with what the chapter
// expects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/bench/partition/scheme.h>
#include <lockstep/app/report/finding.h>
#include <lockstep/support/statistics.h>

namespace lockstep {

// One row of the table.
struct SchemeFigures {
  std::string scheme;
  int micro_batches = 1;
  Quartiles seconds;               // per step
  std::optional<double> over_one;  // paired ratio of its seconds to one device's
  StepCost cost;
};

// The rows of one network on one list of devices.
struct PartitionFigures {
  std::string network;
  std::string devices;  // "cpux2"
  int size = 0;         // number of devices
  // How many of them can work at the same time. Fewer than `size` if devices share cores or a GPU.
  double at_once = 0;
  std::vector<size_t> starts = {};         // of the pipeline's stages, from balanced_stages()
  std::vector<std::string> stages = {};    // the layers of each stage, as text
  std::vector<double> stage_shares = {};   // each stage's share of the time of all layers on one device
  std::optional<double> micro_ratio = {};  // paired ratio of a step with micro-batches to a step without
  SchemeFigures one = {};
  SchemeFigures pipeline = {};
  SchemeFigures pipeline_micro_batches = {};
  SchemeFigures tensor_parallel = {};
  SchemeFigures data_parallel = {};
};

// Findings on time are left out if there are too few repetitions for ratios.
std::vector<Finding> partition_findings(const PartitionFigures& figures);

}  // namespace lockstep
