#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <lockstep/models/program/convert_argument.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/guards.h>
#include <lockstep/models/program/parts.h>

namespace lockstep::program {
namespace {

// Numbers of the symbols, in the order in which inputs have them.
class Symbols {
 public:
  Symbols(const std::map<std::string, Range>& ranges, std::vector<Range>& all) : ranges_(ranges), all_(all) {}

  int number_of(const std::string& symbol) {
    const auto [found, is_new] = numbers_.emplace(symbol, static_cast<int>(all_.size()));
    if (is_new) {
      const auto range = ranges_.find(symbol);
      all_.push_back(range == ranges_.end() ? Range{} : range->second);
    }
    return found->second;
  }

 private:
  const std::map<std::string, Range>& ranges_;
  std::vector<Range>& all_;
  std::map<std::string, int> numbers_;
};

const TensorMeta& meta_of(const ExportedGraph& exported, const std::string& value) {
  const auto found = exported.graph.tensors.find(value);
  if (found == exported.graph.tensors.end())
    throw FormatError(fmt::format("says nothing about the tensor '{}'", value));
  return found->second;
}

UserInput user_input(const ExportedGraph& exported, const GraphInput& input, int slot, Symbols& symbols) {
  const auto& meta = meta_of(exported, input.value);
  UserInput user{.name = input.name, .slot = slot, .dtype = scalar_type(meta.dtype)};
  for (const auto& size : meta.sizes) {
    user.sizes.push_back(
        {.number = size.number, .symbol = size.symbol.empty() ? -1 : symbols.number_of(size.symbol)});
  }
  return user;
}

const SlotOf kNoValues = [](const std::string& name) -> int {
  throw FormatError(fmt::format("has an argument of forward() that is '{}'", name));
};

void add_outputs(const ExportedGraph& exported, ProgramGraph& graph) {
  for (size_t i = 0; i < exported.outputs.size(); ++i) {
    const auto* value = std::get_if<ValueName>(&exported.outputs[i].value);
    const auto meta = value ? exported.graph.tensors.find(value->name) : exported.graph.tensors.end();
    if (meta == exported.graph.tensors.end()) continue;
    Program::Tensor output{.name = exported.outputs[i].name, .dtype = scalar_type(meta->second.dtype)};
    for (const auto& size : meta->second.sizes) output.sizes.push_back(size.number);
    graph.outputs.push_back(std::move(output));
    graph.output_places.push_back(i);
  }
}

// Rows are the first dimension of the first input where it may differ, else of the first input.
void find_rows(ProgramGraph& graph) {
  for (const auto& input : graph.inputs) {
    if (input.sizes.empty()) continue;
    if (input.sizes[0].symbol >= 0) {
      graph.rows_symbol = input.sizes[0].symbol;
      return;
    }
    if (graph.fixed_rows < 0) graph.fixed_rows = input.sizes[0].number;
  }
}

bool fits(const RowReport& report, bool whole_batch_norms) {
  if (report.outcome == RowOutcome::kEqual || report.outcome == RowOutcome::kClose) return true;
  const bool of_norms_alone = report.text.find("more than 1 value per channel") != report.text.npos;
  return whole_batch_norms && report.outcome == RowOutcome::kRefused && of_norms_alone;
}

std::string text_of(const RowReport& report) {
  return fmt::format(
      "with {} row{} {}", report.rows, report.rows == 1 ? "" : "s",
      report.outcome == RowOutcome::kDifferent ? "it differs from Python: " + report.text : report.text);
}

std::vector<RowReport> reports_of(const std::vector<RowReport>& reports, const std::string& graph) {
  std::vector<RowReport> own;
  std::ranges::copy_if(reports, std::back_inserter(own),
                       [&](const auto& report) { return report.graph == graph; });
  std::ranges::sort(own, {}, &RowReport::rows);
  return own;
}

// Reports of a graph, with more and more rows. What was right is a stretch of them: the longest one between
// two that were wrong.
void apply(const std::vector<RowReport>& reports, bool whole_batch_norms, Program::Rows& rows) {
  const RowReport *below = nullptr, *best_below = nullptr, *best_above = nullptr;
  std::vector<const RowReport*> good, best;
  const auto end_stretch = [&](const RowReport* above) {
    if (good.size() > best.size()) {
      best = good;
      best_below = below;
      best_above = above;
    }
    good.clear();
    below = above;
  };
  for (const auto& report : reports) {
    const bool right = fits(report, whole_batch_norms);
    if (report.rows == 0) {
      rows.empty = right;
      if (!right && rows.why.empty()) rows.why = text_of(report);
    } else if (right) {
      good.push_back(&report);
    } else {
      end_stretch(&report);
    }
  }
  end_stretch(nullptr);
  if (best.empty()) {
    if (reports.empty() || reports.back().rows == 0) return;  // nothing is known of any rows
    const auto& last = reports.back();
    rows.least = last.rows < 3 ? std::max(rows.least, last.rows + 1) : std::numeric_limits<int64_t>::max();
    rows.why = text_of(last);
    return;
  }
  if (best.front()->rows < rows.least) {  // Python's range assumes more than is needed
    rows.least = best.front()->rows;
    if (rows.most == std::numeric_limits<int64_t>::max() && rows.empty) rows.why.clear();
  }
  if (best_below && best_below->rows >= rows.least) {
    rows.least = best_below->rows + 1;
    rows.why = text_of(*best_below);
  }
  if (best_above && best_above->rows <= rows.most) {
    rows.most = best_above->rows - 1;
    rows.why = text_of(*best_above);
  }
}

}  // namespace

Program::Rows rows_of(const Range& range, int64_t fixed, const std::vector<RowReport>& reports,
                      const std::string& graph, bool whole_batch_norms) {
  if (fixed >= 0) {
    return {.least = fixed,
            .most = fixed,
            .empty = false,
            .why = fmt::format("it was exported for {} rows alone", fixed)};
  }
  Program::Rows rows{
      .least = std::max<int64_t>(range.least, 1), .most = range.most, .empty = range.least <= 0};
  if (rows.least > 1 || rows.most < std::numeric_limits<int64_t>::max()) {
    rows.why = fmt::format(
        "torch.export found that it holds for {} to {} rows", range.least,
        rows.most < std::numeric_limits<int64_t>::max() ? std::to_string(rows.most) : "any number of");
  }
  apply(reports_of(reports, graph), whole_batch_norms, rows);
  return rows;
}

ProgramGraph bind_graph(const ProgramFile& file, const std::string& name, torch::ScalarType float_type,
                        const std::map<std::string, size_t>& places) {
  const auto& exported = file.graphs.at(name);
  ProgramGraph graph{.resolved = resolve(exported, float_type)};
  Symbols symbols(exported.ranges, graph.symbols);
  std::map<std::string, size_t> constants;
  for (size_t i = 0; i < exported.inputs.size(); ++i) {
    const auto& input = exported.inputs[i];
    const int slot = graph.resolved.graph->inputs.at(i);
    switch (input.kind) {
      case InputKind::kParameter:
      case InputKind::kBuffer:
      case InputKind::kPassingBuffer:
        graph.tensors.push_back({slot, places.at(input.name)});
        break;
      case InputKind::kConstant: {
        const auto& stored = file.constants.at(name);
        const auto found = std::ranges::find(stored, input.name, &StoredTensor::name);
        if (found == stored.end()) throw FormatError(fmt::format("has no constant '{}'", input.name));
        graph.constants.push_back({slot, graph.stored_constants.size()});
        graph.stored_constants.push_back(*found);
        break;
      }
      case InputKind::kUser:
        graph.inputs.push_back(user_input(exported, input, slot, symbols));
        break;
      case InputKind::kFixed:
        graph.fixed.emplace_back(slot, std::holds_alternative<std::string>(input.fixed)
                                           ? c10::IValue(std::get<std::string>(input.fixed))
                                           : convert_value(input.fixed, kNoValues).constant);
        break;
    }
  }
  add_outputs(exported, graph);
  find_rows(graph);
  const bool compared = !reports_of(file.row_reports, name).empty();
  apply_guards(exported.guards, compared, graph);
  const auto range = graph.rows_symbol < 0 ? Range{} : graph.symbols[static_cast<size_t>(graph.rows_symbol)];
  const auto fixed = graph.rows_symbol < 0 ? std::max<int64_t>(graph.fixed_rows, 0) : -1;
  graph.rows = rows_of(range, fixed, file.row_reports, name, false);
  graph.rows_of_whole_batch = rows_of(range, fixed, file.row_reports, name, true);
  return graph;
}

}  // namespace lockstep::program
