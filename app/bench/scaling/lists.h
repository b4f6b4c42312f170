// Turns the device lists of `bench scaling` into the cases that it measures.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/report/bench_replicas.h>

namespace lockstep {

class ScalingLists {
 public:
  // options: kept by reference. lists: at least one. All processes construct one: the first 2, 4, ... of
  // them are connected as worlds of their own. Throws as ProcessGroup::subgroup() does.
  ScalingLists(const BenchScalingOptions& options, std::vector<BenchReplicas> lists);

  int threads() const { return threads_; }  // of each replica

  // The reference (one device alone) comes first, then every list in every mode. With --split auto also every
  // other device alone, to tell whether mixing devices pays. Where there are several processes, each list is
  // measured in the first 1, 2, 4, ... and in all of them, which is the last case. Throws as `train` does.
  std::vector<ScalingCase> cases();

  // The input of a prediction: one replica with batches of B, B/2 and B/4 images. CPU replicas compete for
  // memory. So background trainings take the place of the other replicas of the longest list, as far as there
  // are free cores. Several processes train at the same time, each alone, with their first lists.
  std::vector<ScalingCase> fractions();

 private:
  bool single_process() const { return lists_.front().world.single_process(); }
  int process() const { return lists_.front().world.place.process; }
  int processes() const { return lists_.front().world.place.processes; }

  void connect_parts();
  // The replicas of the first `count` processes.
  BenchReplicas first_processes(const BenchReplicas& replicas, int count) const;
  // The batch has B images (strong) or n B (weak), divided by `divisor`.
  ScalingCase make_case(Scaling scaling, const BenchReplicas& replicas, int64_t divisor = 1);
  // The same; the others wait.
  ScalingCase case_of_first(Scaling scaling, const BenchReplicas& replicas, int count);
  void add_other_devices(std::vector<ScalingCase>& all);
  int replicas_with_own_cores() const;  // how many CPU replicas can have cores of their own

  const BenchScalingOptions& options_;
  const std::vector<BenchReplicas> lists_;
  // By the number of processes. Null: this one is not in it.
  std::map<int, std::shared_ptr<ProcessGroup>> parts_;
  int longest_ = 1;
  int threads_ = 1;
  std::optional<LoadedData> data_;
};

}  // namespace lockstep
