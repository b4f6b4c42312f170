// Evaluates a whole data set on all devices of all processes at once. Trainer::evaluate() does it with its
// test sets.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct TestSet {
  std::string name;
  SourceFactory source;
};

// The data sets that a Trainer evaluates: a source alone, which is named "test", or several by name.
//
//   Trainer trainer(factory, train, test, options);
//   Trainer trainer(factory, train, {{"validation", validation}, {"test", test}}, options);
class TestSets {
 public:
  template <class Source>
  requires(!std::same_as<std::remove_cvref_t<Source>, TestSets> &&
           std::constructible_from<SourceFactory, Source>) TestSets(Source&& source)
      : sets_{{"test", SourceFactory(std::forward<Source>(source))}} {}
  TestSets(std::initializer_list<TestSet> sets) : sets_(sets) {}
  explicit TestSets(std::vector<TestSet> sets) : sets_(std::move(sets)) {}

  auto begin() const { return sets_.begin(); }
  auto end() const { return sets_.end(); }

 private:
  std::vector<TestSet> sets_;
};

// The most rows that a replica evaluates at once.
inline constexpr int64_t kEvaluationBlock = 256;

// Callback after each block, with the number of rows that this process's replicas have evaluated (on GPUs:
// queued), of those that they will; in one process that is the whole set. The replicas' threads call it, one
// at a time; the caller's thread makes the last call, with all rows. A process without a block makes no call.
// When it throws, the replicas of this process stop after their current block, and evaluate() throws the
// exception in this process and PeerError in the others (after the last call these have their result). All
// processes can evaluate again.
using EvaluationProgress = std::function<void(int64_t rows_done, int64_t rows)>;

// Cuts the set into blocks of at most kEvaluationBlock rows, whose sizes differ by at most one. The ranks of
// the world take them in rotation. Adds the blocks' sums in order: counts are exactly the same on any number
// of devices and processes. A collective: every process calls it, and gets the same result. models[i] (all
// with the same weights and statistics) and sources[i] are on workers.devices()[i], the device of the
// communicator's endpoint i; every source holds the whole set. Modules are in evaluation mode meanwhile;
// afterwards each part has its own mode again. Throws UsageError when the set is empty, what `progress`
// throws, PeerError when another process has stopped, and the error that ended a collective. `progress` may
// be empty.
RowSums evaluate(std::span<const Model> models, std::span<const std::shared_ptr<const BatchSource>> sources,
                 Precision precision, ReplicaWorkers& workers, Communicator& communicator,
                 const EvaluationProgress& progress = {});

}  // namespace lockstep
