// The parts of a Program.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/program.h>
#include <lockstep/models/program/program_file.h>
#include <lockstep/models/program/resolve.h>

namespace lockstep {
namespace program {

// A size of an input: a number, or which symbol of the graph it is, or -1 and -1.
struct InputSize {
  int64_t number = -1;
  int symbol = -1;
};

struct UserInput {
  std::string name;
  int slot = -1;
  torch::ScalarType dtype = torch::kFloat32;
  std::vector<InputSize> sizes = {};
};

Program::Tensor tensor_of(const UserInput& input);

// "Float (any, 6)"
std::string text_of(const Program::Tensor& tensor);

// A weight, buffer or constant: its slot, and its place among Program::Parts::tensors or
// ProgramGraph::constants.
struct BoundInput {
  int slot = -1;
  size_t index = 0;
};

// A graph with all that running it needs.
struct ProgramGraph {
  Resolved resolved = {};
  std::vector<UserInput> inputs = {};
  std::vector<BoundInput> tensors = {}, constants = {};
  std::vector<std::pair<int, c10::IValue>> fixed = {};  // slots and values
  std::vector<StoredTensor> stored_constants = {};
  std::vector<Range> symbols = {};  // sizes that may differ
  int rows_symbol = -1;             // of the inputs' first dimension; -1: it is fixed
  int64_t fixed_rows = -1;          // where it is
  std::vector<Program::Tensor> outputs = {};
  std::vector<size_t> output_places = {};  // of these among the graph's: others are no tensors
  Program::Rows rows = {},
                rows_of_whole_batch = {};  // of Program::rows(), without and with whole_batch_norms
};

// A tensor that replicas have: a weight of the file, each once, or a buffer that is not persistent.
struct ModuleTensor {
  StoredTensor stored;
  bool persistent = true;
};

ProgramGraph bind_graph(const ProgramFile& file, const std::string& name, torch::ScalarType float_type,
                        const std::map<std::string, size_t>& places);

// The rows of a graph with this range of them. fixed: the number of rows, or -1. A name of the file's row
// reports.
Program::Rows rows_of(const Range& range, int64_t fixed, const std::vector<RowReport>& reports,
                      const std::string& graph, bool whole_batch_norms);

}  // namespace program

struct Program::Parts {
  program::ProgramFile file;
  std::string name;                                // for errors: "program 'net.pt2'"
  torch::ScalarType float_type = torch::kFloat32;  // of the parameters
  std::vector<program::ModuleTensor> tensors;
  std::map<std::string, size_t> places;  // of all names, also those of tied weights, among `tensors`
  program::ProgramGraph training;
  std::optional<program::ProgramGraph> own_evaluation;
  std::vector<Tensor> inputs;
  int64_t parameter_count = 0;

  // Null: there is none.
  const program::ProgramGraph* evaluation() const {
    if (own_evaluation) return &*own_evaluation;
    return training.resolved.depends_on_mode ? nullptr : &training;
  }
};

}  // namespace lockstep
