// The tables of settings: what a row must have.
#include <CLI/CLI.hpp>

#include <lockstep/tests/catch.h>

#include <set>
#include <string>
#include <tuple>

#include <lockstep/app/train/settings/settings.h>

using namespace lockstep;

TEST_CASE("each setting has names of its own, and all that its places need") {
  std::set<std::string> names, keys;
  for (const auto& setting : all_settings()) {
    INFO(setting.name);
    CHECK(names.insert(setting.name).second);
    CHECK(keys.insert(key_of(setting)).second);
    CHECK((setting.commands != 0) == (setting.add != nullptr));
    if (setting.in & kInPlan) CHECK(setting.planned);
    if (setting.in & (kInBench | kInSweep | kAgreed)) CHECK((setting.planned || setting.given));
    if (setting.in & kInConfig) {
      CHECK((setting.planned || setting.config));
      CHECK((setting.commands & kTrain) != 0);  // a configuration has keys that are flags
    }
    // A checkpoint holds the plan of its run.
    if (setting.on_resume != OnResume::kTaken) CHECK((setting.in & kInPlan) != 0);
    if (setting.on_resume == OnResume::kRefusedUnnamed) CHECK((setting.commands & kTrain) != 0);
  }
}

TEST_CASE("each command gets its own flags, in groups of the help") {
  for (const auto& [command_is, has, lacks] :
       {std::tuple(kTrain, "--compress", "--repeat"), std::tuple(kBench, "--lr", "--devices"),
        std::tuple(kSweep, "--limit-steps", "--lr")}) {
    CLI::App command;
    TrainFlags flags;
    add_setting_flags(command, command_is, flags);
    INFO(has);
    REQUIRE(command.get_option_no_throw(has));
    CHECK(command.get_option(has)->get_group() != "Options");
    CHECK_FALSE(command.get_option_no_throw(lacks));
  }
}
