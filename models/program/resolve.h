// A graph whose operations and values have been looked up, so that it can be run.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/program/graph.h>
#include <lockstep/models/program/size_arithmetic.h>

namespace lockstep::program {

// How an argument is made when an operation is called. Values of a run have slots.
struct ReadyArgument {
  enum class Kind : uint8_t {
    kConstant,
    kValue,    // of the slot
    kWrapped,  // the slot's number as a tensor without a type of its own: Python passes numbers for tensors
    kTensors,  // a list, of slots
    kOptionalTensors,  // a list, of slots or -1
    kInts,             // a list, of slots, or where these are -1 of `ints`
    kDevice,           // the module's
    kFloatType,  // the module's, where it has been converted to another than the program's; else the constant
  };

  Kind kind = Kind::kConstant;
  c10::IValue constant = {};
  std::vector<int> slots = {};
  std::vector<int64_t> ints = {};
};

struct ReadyResult {
  std::vector<int> slots = {};  // one, or those of a list; -1: nobody uses it
  bool is_list = false;
};

struct ReadyGraph;

// A convolution, a batch norm by the batch, perhaps an addition, and ReLU. Nobody else uses what they compute
// on the way, so lockstep's kernels may compute them together (fused_layers.h).
struct ConvNormRelu {
  int norm = -1;            // of BatchNorms
  int weight = -1;          // the slot of the norm's
  int residual = -1;        // which argument of the addition is added to the norm's result; -1: there is none
  bool takes_bias = false;  // the convolution's bias is a weight of the program: the norm removes it
  bool apart = false;       // another batch norm stands between this one and the addition
};
enum class LayerPart : uint8_t { kNone, kConv, kNorm, kAddition, kRelu };

// One of these is there: operation, arithmetic, body.
struct ReadyNode {
  std::optional<c10::OperatorHandle> operation = {};
  SizeOperation arithmetic = nullptr;
  std::shared_ptr<const ReadyGraph> body = {};  // of a region with gradients on or off
  bool grad_enabled = false;                    // in the body
  bool is_rnn = false;
  std::vector<ReadyArgument> arguments = {};
  std::vector<ReadyResult> results = {};
  std::vector<int> last_uses = {};  // slots that are free afterwards
  int norm = -1;                    // of BatchNorms: normalises by the batch
  int counter = -1;                 // of BatchNorms: counts its batches
  int layers = -1;                  // of ReadyGraph::conv_norms: it is a part of these
  LayerPart part = LayerPart::kNone;
  std::vector<int> restored = {};    // slots of tensors that lockstep's kernels left in channels_last: they
                                     // are made contiguous before it runs
  std::string name = {}, line = {};  // "aten::linear", its line of Python, for errors
};

struct ReadyGraph {
  int slots = 0;
  std::vector<int> inputs = {};  // slots, in order
  std::vector<ReadyNode> nodes = {};
  std::vector<ReadyArgument> outputs = {};
  std::vector<ConvNormRelu> conv_norms = {};
  std::vector<int> restored = {};  // as a node's, before the outputs are returned
};

// A batch normalisation that normalises by the batch in training.
struct BatchNormUse {
  std::string module = {};  // "layer1.0.bn1"; empty: none is known
  std::string place = {};   // its line of Python
  int64_t dimensions = 0;   // of its input
  double momentum = 0, eps = 0;
  bool affine = false, averages = false;  // has a weight and a bias; running averages
  bool matched = false;                   // weights and averages are the module's
  bool counts = false;                    // an operation of the graph counts its batches
};

struct Resolved {
  std::shared_ptr<const ReadyGraph> graph;
  std::vector<BatchNormUse> norms;
  int64_t fused_norms = 0;                    // of ReadyGraph::conv_norms, also of regions
  std::map<std::string, int64_t> operations;  // "aten::conv2d" -> how often
  bool depends_on_mode = false;               // such as by a dropout: it is wrong for evaluation
  bool random = false;
  bool writes_buffers = false;  // others than averages and counters of batch norms, also through views
  bool captures = true;         // no operation's result or its size depends on data
};

// float_type: of the program's parameters. Throws FormatError for an operation that this LibTorch does not
// have, and for arguments that do not fit its schema.
Resolved resolve(const ExportedGraph& exported, torch::ScalarType float_type);

torch::ScalarType scalar_type(ElementType type);

}  // namespace lockstep::program
