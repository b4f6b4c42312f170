// Which run may go on from a checkpoint, and what is told about it.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train/checkpoint/run_state.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

TEST_CASE("a run takes batch size and rate of its checkpoint, unless flags give them") {
  const Json saved = {{"batch_size", 64}, {"lr", .3}};
  TrainFlags flags;
  take_batch_and_rate(saved, flags);
  CHECK(flags.batch_size == 64);
  CHECK(flags.lr == .3);
  TrainFlags given;
  given.batch_size = 32;
  given.lr = .1;
  take_batch_and_rate(saved, given);
  CHECK(given.batch_size == 32);
  CHECK(given.lr == .1);
}

TEST_CASE("another training than the checkpoint's is refused, or taken where that is asked for") {
  const Json saved = {
      {"model", "lenet"}, {"lr", .1}, {"batch_size", 64}, {"schedule", "cosine"}, {"epochs", 10}};
  const std::vector<std::string> none;
  check_same_run(saved, saved, none);
  auto other = saved;
  other["lr"] = .2;
  CHECK_THROWS_WITH(check_same_run(saved, other, none), "the checkpoint's run has lr 0.1, this one has 0.2");
  check_same_run(saved, other, std::vector<std::string>{"lr"});
  CHECK_THROWS_AS(check_same_run(saved, other, std::vector<std::string>{"momentum"}), WeightsError);
  other = saved;
  other["model"] = "resnet18";
  for (const auto& setting : changeable_settings()) {
    CHECK_THROWS_AS(check_same_run(saved, other, std::vector<std::string>{setting}), WeightsError);
  }
  other["lr"] = .2;  // its hint would only lead to the next refusal
  CHECK_THROWS_WITH(check_same_run(saved, other, none),
                    "the checkpoint's run has model lenet, this one has resnet18");
  other = saved;
  other["epochs"] = 20;
  other["seed"] = 3;
  CHECK_THROWS_WITH(check_same_run(saved, other, none), "the checkpoint's run has seed none, this one has 3");
  other.erase("seed");
  CHECK_THROWS_AS(check_same_run(saved, other, none), WeightsError);
  check_same_run(saved, other, std::vector<std::string>{"epochs"});
  for (const auto& [schedule, value] : kScheduleNames) {  // the rates of some do not depend on the length
    INFO(schedule);
    auto before = saved;
    before["schedule"] = other["schedule"] = schedule;
    if (value == Schedule::kOneCycle || value == Schedule::kCosine || value == Schedule::kStep) {
      CHECK_THROWS_AS(check_same_run(before, other, none), WeightsError);
    } else {
      CHECK_NOTHROW(check_same_run(before, other, none));
    }
  }
}

TEST_CASE("image files that were written since are told of, where both runs know their times") {
  const Json times = {{"train_data_times", "0a"}}, others = {{"train_data_times", "0b"}},
             unknown = {{"train_data_times", nullptr}};
  CHECK_THAT(rewritten_files(times, others), ContainsSubstring("since the run has read them"));
  CHECK_NOTHROW(check_same_run(times, others, {}));
  for (const auto& [saved, planned] : {std::pair(times, times), std::pair(unknown, times),
                                       std::pair(times, unknown), std::pair(Json::object(), times)}) {
    CHECK(rewritten_files(saved, planned).empty());
  }
}

TEST_CASE("an average of the weights begins, changes its decay or ends where that is asked for") {
  const std::vector<std::string> none, ema{"ema"};
  const Json earlier = Json::object(), without = {{"ema", nullptr}}, some = {{"ema", .9}},
             other = {{"ema", .5}};
  check_same_run(earlier, without, none);
  CHECK_THROWS_WITH(check_same_run(some, other, none), "the checkpoint's run has ema 0.9, this one has 0.5");
  for (const auto& [saved, planned] : {std::pair(earlier, some), std::pair(without, some),
                                       std::pair(some, other), std::pair(some, without)}) {
    CHECK_THROWS_AS(check_same_run(saved, planned, none), WeightsError);
    check_same_run(saved, planned, ema);
  }
}

TEST_CASE("another factor of the same schedule is refused; another schedule brings its own") {
  const std::vector<std::string> none;
  const Json plateau = {{"schedule", "plateau"}, {"gamma", .1}, {"plateau_patience", 10}};
  auto other = plateau;
  other["gamma"] = .5;
  CHECK_THROWS_WITH(check_same_run(plateau, other, none),
                    "the checkpoint's run has gamma 0.1, this one has 0.5");
  check_same_run(plateau, other, std::vector<std::string>{"gamma"});
  other = plateau;
  other["plateau_patience"] = 2;
  CHECK_THROWS_WITH(check_same_run(plateau, other, none),
                    "the checkpoint's run has plateau patience 10, this one has 2");
  const Json exponential = {{"schedule", "exponential"}, {"gamma", .9}, {"plateau_patience", nullptr}};
  CHECK_THROWS_WITH(check_same_run(plateau, exponential, none),
                    "the checkpoint's run has schedule plateau, this one has exponential");
  check_same_run(plateau, exponential, std::vector<std::string>{"schedule"});
  const Json earlier = {{"schedule", "constant"}};  // of a version without these settings
  check_same_run(earlier, {{"schedule", "constant"}, {"gamma", nullptr}, {"plateau_patience", nullptr}},
                 none);
  check_same_run(earlier, plateau, std::vector<std::string>{"schedule"});
}

TEST_CASE("one-cycle rises by itself: it needs no leave to drop the warm-up of the run before") {
  const std::vector<std::string> none, schedule = {"schedule"};
  const Json cosine = {{"schedule", "cosine"}, {"warmup_epochs", 2}};
  const Json onecycle = {{"schedule", "onecycle"}, {"warmup_epochs", 0}};
  const Json constant = {{"schedule", "constant"}, {"warmup_epochs", 0}};
  check_same_run(cosine, onecycle, schedule);
  CHECK_THROWS_WITH(check_same_run(cosine, onecycle, none),
                    "the checkpoint's run has schedule cosine, this one has onecycle");
  CHECK_THROWS_WITH(check_same_run(cosine, constant, schedule),
                    "the checkpoint's run has warmup epochs 2, this one has 0");
}

TEST_CASE("changed settings are those with another value, and the devices and test images of a figure stay") {
  const Json saved = {{"devices", {"cpu"}}, {"test_rows", 64}, {"epochs", 2}, {"lr", .1}};
  Json planned = {
      {"devices", {"cpu"}}, {"test_rows", 64}, {"test_data_hash", "ab"}, {"epochs", 3}, {"lr", .1}};
  CHECK(changed_settings(saved, planned) == Json{{"epochs", 3}});  // saved has no hash: an earlier version's
  CHECK(same_test_settings(changed_settings(saved, planned)));
  planned["devices"] = {"cpu", "cpu"};
  CHECK_FALSE(same_test_settings(changed_settings(saved, planned)));
  const auto as_before = with_test_settings_of(saved, planned);
  CHECK(as_before.at("devices") == Json{"cpu"});
  CHECK(as_before.at("epochs") == 3);
  planned["devices"] = {"cpu"};
  planned["test_rows"] = 65;
  CHECK_FALSE(same_test_settings(changed_settings(saved, planned)));
  CHECK(changed_settings(Json(), planned).empty());
}

TEST_CASE("what a plan finds out is no setting that changes, whatever a run that goes on finds") {
  const Json saved = {{"memory_estimate_bytes", 1},
                      {"normalize_rows", 100},
                      {"unreadable_images", {"a/b.png"}},
                      {"ema", 0}},
             planned = {{"memory_estimate_bytes", 2},
                        {"normalize_rows", nullptr},
                        {"unreadable_images", {"c/b.png"}},
                        {"ema", .9}};
  CHECK(changed_settings(saved, planned) == Json{{"ema", .9}});
}

// Its buffer is a part of the optimizer's state, or not.
TEST_CASE("momentum may change where that is asked for, but not be turned on or off") {
  const std::vector<std::string> anyway = {"momentum"};
  const Json some = {{"momentum", .9}}, less = {{"momentum", .5}}, none = {{"momentum", 0.}};
  check_same_run(some, less, anyway);
  for (const auto& [before, now] : {std::pair(some, none), std::pair(none, some)}) {
    try {
      check_same_run(before, now, anyway);
      FAIL("taken");
    } catch (const WeightsError& error) {
      CHECK_THAT(error.message(), ContainsSubstring("the checkpoint's run has momentum 0"));
      CHECK_THAT(error.hint(), ContainsSubstring("momentum cannot be turned on or off") &&
                                   !ContainsSubstring("--resume-anyway"));
    }
  }
}

TEST_CASE("where momentum is turned off, no hint offers another setting first") {
  const Json saved = {{"lr", .1}, {"momentum", .9}}, planned = {{"lr", .2}, {"momentum", 0.}};
  CHECK_THROWS_WITH(check_same_run(saved, planned, {}),
                    "the checkpoint's run has momentum 0.9, this one has 0.0");
}

TEST_CASE("a run goes on with its training data, and with any test data") {
  const Json saved = {{"train_data_hash", "0a"}, {"test_data_hash", "0b"}};
  try {
    check_same_run(saved, {{"train_data_hash", "0c"}, {"test_data_hash", "0b"}}, {});
    FAIL("other data are taken");
  } catch (const WeightsError& error) {
    CHECK(error.message() == std::string("the checkpoint's run has train data hash 0a, this one has 0c"));
    CHECK(error.hint() == "train on the same data (--data), or start a new run");
  }
  CHECK_NOTHROW(check_same_run(saved, {{"train_data_hash", "0a"}, {"test_data_hash", "0c"}}, {}));
  CHECK_NOTHROW(check_same_run(Json::object(), saved, {}));  // a checkpoint of an earlier version
}

TEST_CASE("what changes the last bits is told") {
  RunState state;
  state.plan = {{"threads", 2}, {"devices", {"cpu"}}, {"kernels", "auto"}};
  Json planned = {{"threads", 1}, {"devices", {"cpu", "cpu"}}, {"kernels", "auto"}};
  const auto contains = [&](const std::string& text) {
    const auto found = bit_differences(state, planned);
    return std::find(found.begin(), found.end(), text) != found.end();
  };
  CHECK(contains("threads 1 instead of 2"));
  CHECK(contains("devices [cpu, cpu] instead of [cpu]"));
  planned["invariant"] = true;
  CHECK_FALSE(contains("devices [cpu, cpu] instead of [cpu]"));
}

TEST_CASE("other shares of the same batch change the last bits; another batch has other rows anyway") {
  RunState state;
  state.plan = {{"devices", {"cpu", "cpu"}}, {"batch_size", 128}, {"split", {64, 64}}};
  auto planned = state.plan;
  planned["split"] = {100, 28};
  const auto split_is_told = [&] {
    const auto found = bit_differences(state, planned);
    return std::find(found.begin(), found.end(), "split [100, 28] instead of [64, 64]") != found.end();
  };
  CHECK(split_is_told());
  planned["batch_size"] = 256;
  CHECK_FALSE(split_is_told());
}

// 640 images take 10 steps of 64, or 5 of 128.
TEST_CASE(
    "another batch size begins with an epoch, and counts the steps of those before in its own batches") {
  const Json saved = {{"model", "lenet"}, {"batch_size", 64}, {"steps_per_epoch", 10}};
  Json planned = saved;
  planned["batch_size"] = 128;
  planned["steps_per_epoch"] = 5;
  CHECK_THROWS_WITH(check_same_run(saved, planned, std::vector<std::string>{"lr"}),
                    "the checkpoint's run has batch size 64, this one has 128");
  check_same_run(saved, planned, std::vector<std::string>{"batch-size"});

  auto state = state_of(30);  // after three epochs
  state.plan = saved;
  state.position.epoch = 4;
  state.position.step = 0;
  rescale_steps(state, saved);
  CHECK(state.trainer.steps == 30);
  CHECK_FALSE(state.position.left_out.empty());
  rescale_steps(state, planned);
  CHECK(state.trainer.steps == 15);
  CHECK(state.position.left_out.empty());
  CHECK(state.position.accuracy == state_of(30).position.accuracy);

  state.position.step = 7;
  CHECK_THROWS_WITH(
      rescale_steps(state, planned),
      "the checkpoint is of step 7 of epoch 4, batches of 128 instead of 64 begin with an epoch");
}
