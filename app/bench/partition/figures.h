// The figures of all schemes that partition one network over one list of devices, what they show, and the
// check that the schemes compute the same gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/bench/partition/scheme.h>
#include <lockstep/app/report/finding.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

inline constexpr double kPartitionRate = .1;  // learning rate

struct BenchPartitionOptions {
  BenchOptions bench;
  std::vector<std::string> models;  // empty: all of layered_network_names()
  int64_t batch_size = 256;
  int micro_batches = 4;
};

// One row of the table.
struct SchemeFigures {
  std::string scheme;
  int micro_batches = 1;
  Seconds seconds;                 // per step
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

// Measures in float, all schemes in turns.
PartitionFigures measure_partition(Mesh& mesh, const LayeredNetwork& network,
                                   const BenchPartitionOptions& options, const BenchReport& report);

// States in sentences what the figures show, and compares them with what the chapter expects. Findings on
// time are left out if there are too few repetitions for ratios.
std::vector<Finding> partition_findings(const PartitionFigures& figures);

struct GradientCheck {
  std::string name;
  bool ok = false;
  std::string detail;
};

// Compares every copy of the network's gradients with `expected`. The detail names the largest difference.
GradientCheck check_against(const std::string& name, const std::vector<Params>& copies,
                            const Params& expected);

// Takes one step of every scheme in double on a few rows and compares its gradients with those of the whole
// network on one device. starts: the first layers of the pipeline's stages.
std::vector<GradientCheck> check_gradients(Mesh& mesh, const LayeredNetwork& network,
                                           const std::vector<size_t>& starts,
                                           const BenchPartitionOptions& options);

}  // namespace lockstep
