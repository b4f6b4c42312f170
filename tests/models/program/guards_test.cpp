#include <lockstep/tests/catch.h>

#include <limits>
#include <string>
#include <vector>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/guards.h>

namespace lockstep {
namespace {

using program::Range;

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

// Inputs of forward(x, y) with x (rows, length, 4) and y (rows).
program::ProgramGraph graph_of_guards() {
  program::ProgramGraph graph;
  graph.inputs = {{.name = "x", .sizes = {{.symbol = 0}, {.symbol = 1}, {.number = 4}}},
                  {.name = "y", .sizes = {{.symbol = 0}}}};
  graph.symbols = {Range{}, Range{}};
  graph.rows_symbol = 0;
  return graph;
}

TEST_CASE("Conditions of Python on sizes narrow the sizes that a program takes") {
  struct Case {
    std::string guard;
    bool compared;  // by the export script, for several numbers of rows
    Range rows, length;
  };
  const std::vector<Case> cases{
      {"L['x'].size()[1] > 3", false, {}, {4, kNoBound}},
      {"L['x'].size()[1] >= 3", false, {}, {3, kNoBound}},
      {"L['x'].size()[1] < 9", false, {}, {0, 8}},
      {"L['x'].size()[1] <= 9", false, {}, {0, 9}},
      {"L['x'].size()[1] == 5", false, {}, {5, 5}},
      {"L['x'].size()[1] != 0", false, {}, {1, kNoBound}},
      {"L['x'].size()[1] != 1", true, {}, {2, kNoBound}},
      {"L['x'].size()[0] > 8", false, {9, kNoBound}, {}},
      {"L['y'].size()[0] > 8", false, {9, kNoBound}, {}},
      {"L['x'].size()[0] > 8", true, {}, {}},
      {"2*L['x'].size()[0] > L['y'].size()[0]", true, {}, {}},
      {"L['x'].size()[0] == L['y'].size()[0]", false, {}, {}},
      {"L['x'].size()[2] != 1", false, {}, {}},
  };
  for (const auto& [guard, compared, rows, length] : cases) {
    INFO(guard);
    auto graph = graph_of_guards();
    program::apply_guards({guard}, compared, graph);
    CHECK(graph.symbols[0].least == rows.least);
    CHECK(graph.symbols[0].most == rows.most);
    CHECK(graph.symbols[1].least == length.least);
    CHECK(graph.symbols[1].most == length.most);
  }
}

TEST_CASE("Conditions of Python that are no bounds of one size are refused by their text") {
  for (const std::string guard :
       {"L['x'].size()[1] != 4", "L['x'].size()[0] == L['x'].size()[1]",
        "L['x'].size()[0] < L['y'].size()[0]", "2*L['x'].size()[1] > 8", "L['x'].size()[1] % 2 == 0",
        "L['z'].size()[0] > 1", "L['x'].size()[7] > 1", "L['x'].size()[-1] > 1", "L['x'].size()[1] > -1",
        "L['x'].size()[1] > 99999999999999999999", "L['x'].size()[1] > ", "L['x'].size()[1]",
        "L['x'].size()[", "L['x'].stride()[0] > 1", "x > 1", ""}) {
    INFO(guard);
    auto graph = graph_of_guards();
    std::string words, hint;
    try {
      program::apply_guards({guard}, /*rows_were_compared=*/false, graph);
    } catch (const program::FormatError& error) {
      words = error.what();
      hint = error.hint();
    }
    CHECK(words == "holds only where " + guard + ", which lockstep does not check");
    CHECK_THAT(hint, Catch::Matchers::ContainsSubstring("export it with a fixed size"));
  }
}

}  // namespace
}  // namespace lockstep
