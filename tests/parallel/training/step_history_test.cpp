// Processes that give a Trainer other rows, epochs or rates are told so.
#include <lockstep/tests/catch.h>

#include <functional>
#include <string>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const std::function<void(Trainer&)> kCompares[] = {
    [](Trainer& trainer) { trainer.take_sums(); }, [](Trainer& trainer) { trainer.evaluate(); },
    [](Trainer& trainer) { trainer.state(); }, [](Trainer& trainer) { trainer.check_sync(); },
    [](Trainer& trainer) { trainer.predict(rows_on_device(8)); }};

// The refusal of each process after these steps; empty: none.
std::vector<std::string> told(const std::function<void(int process, Trainer&)>& steps,
                              const std::function<void(Trainer&)>& compare) {
  return in_processes({1, 1}, {}, [&](int process, const TrainerOptions& own) {
    Trainer trainer(two_layers(), rows_on_device(32), rows_on_device(32), own);
    steps(process, trainer);
    return refusal_of([&] { compare(trainer); });
  });
}

}  // namespace

TEST_CASE("processes that give other rows, epochs or rates are refused by what compares them") {
  struct Case {
    const char* what;
    std::function<void(int process, Trainer&)> steps;
  };
  const Case cases[] = {
      {"rows", [](int process, Trainer& trainer) { trainer.step(first_rows(6 + 2 * process)); }},
      {"rows",
       [](int process, Trainer& trainer) {
         trainer.step(process == 0 ? Rows{1, 2} : Rows{2, 1});
       }},
      {"rows", [](int process, Trainer& trainer) { trainer.step(first_rows(4), process); }},
      {"learning rates",
       [](int process, Trainer& trainer) {
         trainer.step(first_rows(4));
         trainer.set_lr(process == 0 ? .1 : .2);
         trainer.step(first_rows(4));
       }},
      {"numbers of steps",
       [](int process, Trainer& trainer) {
         trainer.step(first_rows(4));
         if (process == 1) trainer.leave_out_step();
       }},
  };
  for (const auto& [what, steps] : cases) {
    for (const auto& compare : kCompares) {
      const auto refusals = told(steps, compare);
      CHECK(refusals[0] ==
            std::string("the process of rank 1 has given other ") + what + " than that of rank 0");
      CHECK(refusals[1] == refusals[0]);
    }
  }
}

TEST_CASE("processes that give the same go on, also from a state") {
  const auto steps = [](int, Trainer& trainer) {
    trainer.step(first_rows(4));
    const auto state = trainer.state();
    trainer.step(first_rows(6), 1);
    trainer.load(state);
    trainer.set_lr(.05);
    trainer.step(first_rows(3));
  };
  for (const auto& compare : kCompares) {
    CHECK(told(steps, compare) == std::vector<std::string>{"", ""});
  }
}

TEST_CASE("processes that make different calls are told both, and can go on") {
  const std::function<void(Trainer&)> calls[] = {[](Trainer& trainer) { trainer.take_sums(); },
                                                 [](Trainer& trainer) { trainer.evaluate(); }};
  for (const size_t first : {0U, 1U}) {
    const auto refusals = in_processes({1, 1}, {}, [&](int process, const TrainerOptions& own) {
      Trainer trainer(two_layers(), rows_on_device(32), rows_on_device(32), own);
      trainer.step(first_rows(4));
      auto refusal = refusal_of([&] { calls[process == 0 ? first : 1 - first](trainer); });
      trainer.evaluate();
      return refusal;
    });
    CHECK(refusals[0] == (first == 0 ? "the process of rank 1 calls evaluate() where that of rank 0 calls "
                                       "take_sums()"
                                     : "the process of rank 1 calls take_sums() where that of rank 0 calls "
                                       "evaluate()"));
    CHECK(refusals[1] == refusals[0]);
  }
}
