// Several test sets of one trainer, by name.
#include <lockstep/tests/catch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

SourceFactory rows_of(int64_t begin, int64_t count) {
  return resident_rows(RowSource(700).all().narrow(begin, count));
}

SourceFactory validation_rows() { return rows_of(0, 300); }
SourceFactory test_rows() { return rows_of(300, 400); }

}  // namespace

TEST_CASE("each test set has the bits that it has alone, on any replicas, and the first one needs no name") {
  for (const auto& layout : std::vector<Layout>{{1}, {2}, {3}, {8}, {1, 1}, {1, 2}}) {
    INFO(text_of(layout));
    const auto evaluated = [&](const TestSets& sets, const std::vector<std::string>& names) {
      return in_processes(layout, options_for(1), [&](int, const TrainerOptions& own) {
        Trainer trainer(two_layers(), validation_rows(), sets, own);
        trainer.step(first_rows(30));
        std::vector<RowSums> results;
        for (const auto& name : names) {
          results.push_back(name.empty() ? trainer.evaluate() : trainer.evaluate(name));
        }
        return results;
      });
    };
    const auto validation = evaluated(validation_rows(), {""}), test = evaluated(test_rows(), {"test"});
    const auto found = evaluated({{"validation", validation_rows()}, {"test", test_rows()}},
                                 {"test", "validation", "", "test"});
    for (size_t process = 0; process < layout.size(); ++process) {
      const auto& own = found[process];
      check_same_sums(own[0], test[process][0]);
      check_same_sums(own[1], validation[process][0]);
      check_same_sums(own[2], validation[process][0]);
      check_same_sums(own[3], test[process][0]);
      CHECK(own[0].rows == 400);
      CHECK(own[0].loss != own[1].loss);
    }
  }
}

TEST_CASE("a set by name reports its progress") {
  Trainer trainer(two_layers(), validation_rows(), {{"validation", validation_rows()}, {"test", test_rows()}},
                  options_for(2));
  std::vector<int64_t> rows;
  trainer.evaluate("test", [&](int64_t, int64_t all) { rows.push_back(all); });
  CHECK(rows == std::vector<int64_t>{400, 400});  // two blocks
}

TEST_CASE("test sets that make no sense are refused, and so is an unknown name") {
  const auto ids = resident_rows({torch::zeros({8, 3}, torch::kInt64), torch::zeros({8}, torch::kInt64)});
  const std::pair<TestSets, const char*> cases[] = {
      {TestSets(std::vector<TestSet>()), "there is no test set | give one, or several by name"},
      {{{"a", test_rows()}, {"a", test_rows()}}, "two test sets are named a | give each its own name"},
      {{{"a", test_rows()}, {"b", {}}},
       "the factory of the b set is empty | give a function that returns a BatchSource on a device"},
      {{{"a", test_rows()}, {"b", ids}},
       "the training set gives input Float [n, 1, 28, 28], target target Long [n], the b set input Long [n, "
       "3], target target Long [n] | one model takes both: give the same names, types and roles"}};
  for (const auto& [sets, words] : cases) {
    CHECK(refusal_and_hint([&, &s = sets] { Trainer(two_layers(), validation_rows(), s, options_for(1)); }) ==
          words);
  }
  Trainer trainer(two_layers(), test_rows(), {{"validation", validation_rows()}, {"test", test_rows()}},
                  options_for(1));
  CHECK(refusal_and_hint([&] { trainer.evaluate("tset"); }) ==
        "no test set is named tset | the trainer has validation, test");
  CHECK(trainer.evaluate("test").rows == 400);
}

TEST_CASE("processes whose test sets have other names are refused, the same in each") {
  const auto refusals = in_processes({1, 1}, {}, [](int process, const TrainerOptions& own) {
    const TestSets sets{{process == 0 ? "validation" : "test", test_rows()}};
    return refusal_of([&] { Trainer(two_layers(), test_rows(), sets, own); });
  });
  CHECK(refusals[0] == "the batches differ: process 1 has a test set where process 0 has a validation set");
  CHECK(refusals[1] == refusals[0]);
}

TEST_CASE("processes that evaluate different sets are refused, the same in each, and go on") {
  for (const auto* other : {"test", "tset"}) {
    const auto refusals = in_processes({1, 1}, {}, [&](int process, const TrainerOptions& own) {
      Trainer trainer(two_layers(), test_rows(), {{"validation", validation_rows()}, {"test", test_rows()}},
                      own);
      const auto refusal = refusal_of([&] { trainer.evaluate(process == 0 ? "validation" : other); });
      return std::pair(refusal, trainer.evaluate("test").rows);
    });
    for (const auto& [refusal, rows] : refusals) {
      CHECK(refusal == std::string("the test sets to evaluate differ: process 1 has ") + other +
                           " where process 0 has validation");
      CHECK(rows == 400);
    }
  }
}
