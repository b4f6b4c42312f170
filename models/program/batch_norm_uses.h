// Finds the batch norms of a graph while it is resolved.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/models/program/graph.h>
#include <lockstep/models/program/resolve.h>

namespace lockstep::program {

// The name of the weight or buffer that an argument is, or an empty one.
using SourceOf = std::function<std::string(const ReadyArgument&)>;

// The module's part of a tensor's name; empty for one of the root.
std::string module_of(const std::string& tensor);

// The batch norms of all regions of one graph, and the counters of their batches.
class BatchNormUses {
 public:
  explicit BatchNormUses(std::vector<BatchNormUse>& norms) : norms_(norms) {}

  // Notes the node if it is a batch norm by the batch, or counts batches. meta: of the norm's input, or null.
  // place: the node's among those of `graph`. Throws FormatError for a norm whose numbers are computed.
  void note(const Node& node, ReadyNode& ready, const TensorMeta* meta, const SourceOf& source_of,
            const std::shared_ptr<ReadyGraph>& graph, size_t place);

  // Gives each counter its norm, which may stand in another region, before or behind it. Call it once, at the
  // end.
  void join_counters();

 private:
  struct Counter {
    std::shared_ptr<ReadyGraph> graph;
    size_t node = 0;
    std::string module = {};
  };

  std::vector<BatchNormUse>& norms_;
  std::vector<Counter> counters_;
};

}  // namespace lockstep::program
