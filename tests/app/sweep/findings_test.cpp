// The findings of a sweep, from made-up results.
#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/app/sweep/findings.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kNoAccuracy = -1;
constexpr int64_t kTestRows = 10'000;

CellResult result(const std::string& devices, int replicas, double lr, double accuracy, double given_lr = 0) {
  CellResult made{.cell = {.devices = devices,
                           .replicas = replicas,
                           .batch_size = 256,
                           .lr = lr,
                           .epochs = 3,
                           .given_lr = given_lr > 0 ? given_lr : lr}};
  if (accuracy != kNoAccuracy) made.figures = CellFigures{.accuracy = accuracy};
  return made;
}

// All sentences, one per line.
std::string text_of(const std::vector<CellResult>& results) {
  std::string text;
  for (const auto& finding : findings_of(results, kTestRows)) text += finding.sentence + "\n";
  return text;
}

}  // namespace

TEST_CASE("cells whose rates differ by rounding are the same") {
  const SweepCell cell{.devices = "cpux3", .replicas = 3, .batch_size = 768, .lr = 3 * .1, .epochs = 1};
  auto other = cell;
  other.lr = .3;
  REQUIRE(other.lr != cell.lr);
  CHECK(cell.is_same_point(other));
  other.lr = .3001;
  CHECK_FALSE(cell.is_same_point(other));
}

TEST_CASE("a sweep names its best cell, the first of equals") {
  CHECK_THAT(text_of({result("cpu", 1, .1, .5), result("cpu", 1, .2, .75), result("cpux2", 2, .2, .75)}),
             ContainsSubstring(
                 "best: test acc 0.7500 on cpu at batch 256, lr 0.2, 3 epochs; one other is within 0.0122 of "
                 "it, which 10,000 test images do not tell apart\n"));
  CHECK(text_of({result("cpu", 1, .1, .5)}) ==
        "best: test acc 0.5000 on cpu at batch 256, lr 0.1, 3 epochs\n");
}

TEST_CASE("a sweep says how the best rate changes with the number of replicas") {
  const auto best = [](double one, double two, double four) {
    std::vector<CellResult> results;
    for (const double lr : {.1, .2, .4}) {
      results.push_back(result("cpu", 1, lr, lr == one ? .8 : .7));
      results.push_back(result("cpux2", 2, lr, lr == two ? .8 : .7));
      results.push_back(result("cpux4", 4, lr, lr == four ? .8 : .7));
    }
    return findings_of(results, kTestRows).at(1);
  };
  const auto up = best(.1, .2, .4);
  CHECK(up.sentence ==
        "best learning rate, one seed each: 0.1 on cpu (test acc 0.8000), 0.2 on cpux2 (test acc 0.8000), "
        "0.4 on "
        "cpux4 (test acc 0.8000): it goes up with the number of replicas");
  CHECK(up.values.at("trend") == "up");
  CHECK(up.values.at("best").at(2).at("lr") == .4);
  CHECK_THAT(best(.1, .1, .2).sentence, ContainsSubstring("it goes up"));
  CHECK_THAT(best(.4, .2, .2).sentence, ContainsSubstring("it goes down"));
  CHECK_THAT(best(.2, .2, .2).sentence,
             ContainsSubstring("no change with the number of replicas is visible"));
  CHECK_THAT(best(.1, .4, .2).sentence, ContainsSubstring("no clear direction"));
}

TEST_CASE("lists with equal numbers of replicas show no trend") {
  const auto finding = findings_of({result("cpu", 1, .1, .8), result("cpu", 1, .2, .7),
                                    result("cuda:0", 1, .1, .7), result("cuda:0", 1, .2, .8)},
                                   kTestRows)
                           .at(1);
  CHECK(finding.values.at("trend").is_null());
  CHECK_THAT(finding.sentence, !ContainsSubstring("replicas"));
}

TEST_CASE("a scaled rate is shown with the given one") {
  CHECK_THAT(text_of({result("cpu", 1, .1, .7, .1), result("cpu", 1, .2, .8, .2),
                      result("cpux3", 3, .3, .8, .1), result("cpux3", 3, .6, .7, .2)}),
             ContainsSubstring("0.2 on cpu (test acc 0.8000), 0.3 (3 x 0.1) on cpux3 (test acc 0.8000)"));
}

TEST_CASE("a best rate at the end of the range is reported, one inside is not") {
  const auto with_best = [](double lr) {
    std::vector<CellResult> results;
    for (const double rate : {.4, .1, .2}) results.push_back(result("cpu", 1, rate, rate == lr ? .8 : .7));
    return text_of(results);
  };
  CHECK_THAT(with_best(.4),
             ContainsSubstring("cpu: 0.4 is the largest rate of the sweep, a larger one may be better"));
  CHECK_THAT(with_best(.1),
             ContainsSubstring("cpu: 0.1 is the smallest rate of the sweep, a smaller one may be better"));
  CHECK_THAT(with_best(.2), !ContainsSubstring("may be better"));
}

TEST_CASE("diverged cells are counted, with their smallest rate") {
  const auto some = text_of({result("cpu", 1, .1, .8), result("cpu", 1, 9, kNoAccuracy),
                             result("cpux2", 2, .1, kNoAccuracy), result("cpux2", 2, 9, kNoAccuracy)});
  CHECK_THAT(some, ContainsSubstring("3 of 4 cells diverged, at the smallest rate lr 0.1 on cpux2"));
  CHECK_THAT(some, ContainsSubstring("0.1 on cpu (test acc 0.8000), none on cpux2 (all diverged)"));
  const auto all = text_of({result("cpu", 1, 8, kNoAccuracy), result("cpu", 1, 9, kNoAccuracy)});
  CHECK_THAT(all, ContainsSubstring("all 2 cells have diverged\n") && !ContainsSubstring("2 of 2"));
  CHECK(text_of({result("cpu", 1, 9, kNoAccuracy)}) == "the only cell has diverged\n");
  CHECK_THAT(text_of({result("cpu", 1, .1, .8)}), !ContainsSubstring("diverged"));
}

TEST_CASE("without accuracies the least loss is the best, and only equal losses are as good") {
  const auto with_loss = [](const char* devices, int replicas, double lr, double loss) {
    auto made = result(devices, replicas, lr, 0);
    made.figures = CellFigures{.test_loss = loss};
    return made;
  };
  const std::vector<CellResult> results = {with_loss("cpu", 1, .1, .5), with_loss("cpu", 1, .2, .25),
                                           with_loss("cpu", 1, .4, 2), with_loss("cpux2", 2, .1, -.125),
                                           with_loss("cpux2", 2, .4, -.125)};
  const auto text = text_of(results);
  CHECK_THAT(text, ContainsSubstring("best: test loss -0.125 on cpux2 at batch 256, lr 0.1, 3 epochs; one "
                                     "other is as good\n"));
  CHECK_THAT(text, ContainsSubstring("0.2 on cpu (test loss 0.25), 0.1 or 0.4 on cpux2 (test loss -0.125)"));
  CHECK(quality_table(results) ==
        "#        lr          cpu        cpux2\n"
        "#            (test loss)  (test loss)\n"
        "        0.1       0.5000      -0.1250\n"
        "        0.2       0.2500     diverged\n"
        "        0.4       2.0000      -0.1250\n");
  CHECK(sweep_row(results[0], false).at("accuracy").is_null());
}

TEST_CASE("the table has the best accuracy of each rate on each list, if there are several of both") {
  auto longer = result("cpux2", 2, .2, .625);
  longer.cell.epochs = 5;
  const auto table =
      quality_table({result("cpu", 1, .1, .25), result("cpu", 1, .2, .5), result("cpux2", 2, .1, kNoAccuracy),
                     result("cpux2", 2, .2, .375), longer});
  CHECK(table ==
        "#        lr         cpu       cpux2\n"
        "#            (test acc)  (test acc)\n"
        "        0.1      0.2500    diverged\n"
        "        0.2      0.5000      0.6250\n");
  CHECK(quality_table({result("cpu", 1, .1, .25), result("cpu", 1, .2, .5)}).empty());
  CHECK(quality_table({result("cpu", 1, .1, .25), result("cpux2", 2, .1, .5)}).empty());
}

TEST_CASE("accuracies that the test images cannot tell apart count as equal") {
  // 2 sqrt(2 x .8 x .2 / 10000) and, with 100 images, ten times as much
  CHECK(accuracy_margin(.8, 10'000) == Approx(.0113137));
  CHECK(accuracy_margin(.8, 100) == Approx(.113137));
  const std::vector<CellResult> close = {result("cpu", 1, .1, .79),   result("cpu", 1, .2, .8),
                                         result("cpu", 1, .4, .7),    result("cpux2", 2, .1, .7),
                                         result("cpux2", 2, .2, .78), result("cpux2", 2, .4, .8)};
  const auto text = text_of(close);
  CHECK_THAT(text, ContainsSubstring("2 others are within 0.0113 of it"));
  CHECK_THAT(text, ContainsSubstring(
                       "0.1 or 0.2 on cpu (test acc 0.8000), 0.4 on cpux2 (test acc 0.8000): it goes up"));
  CHECK_THAT(text, ContainsSubstring("cpux2: 0.4 is the largest rate"));
  // With 100 images the ranges overlap, and neither end is the best.
  const auto few = findings_of(close, 100);
  CHECK(few.at(1).values.at("trend") == "none");
  CHECK(few.size() == 2);
  // An untrained network is equally good with any rate.
  const auto untrained =
      findings_of({result("cpu", 1, .1, .1), result("cpu", 1, .2, .1), result("cpu", 1, .4, .1),
                   result("cpux2", 2, .1, .1), result("cpux2", 2, .2, .1)},
                  kTestRows);
  CHECK_THAT(untrained.at(1).sentence,
             ContainsSubstring("0.1 or 0.2 or 0.4 on cpu") && ContainsSubstring("no change with the number"));
}
