// What the figures of `bench partition` say, in sentences, beside what the chapter expects.
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
struct WayFigures {
  std::string way;
  int micro_batches = 1;
  Spread seconds;                  // of a step
  std::optional<double> over_one;  // seconds as a multiple of one device's, paired
  StepCost cost;
};

// The rows of one network on one list of devices.
struct PartitionFigures {
  std::string network;
  std::string devices;  // "cpux2"
  int size = 0;         // how many
  // How many of them can work at the same time: fewer where devices share cores, or a GPU.
  double at_once = 0;
  std::vector<size_t> starts = {};         // of the stages: balanced_stages()
  std::vector<std::string> stages = {};    // the layers of each, as text
  std::vector<double> stage_shares = {};   // of the time that all layers take on one device
  std::optional<double> micro_ratio = {};  // a step with micro-batches as a multiple of one without, paired
  WayFigures one = {}, network_wise = {}, micro_batches = {}, layer_wise = {}, data_wise = {};
};

std::vector<Finding> partition_findings(const PartitionFigures& figures);

}  // namespace lockstep
