// How the processes of a run begin: what each learns of the others, and what is refused in all of them.
#include <lockstep/tests/catch.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/assemble_run.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/processes/worlds.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using lockstep::testing::run_processes;
using lockstep::testing::world_of;
using Values = nlohmann::ordered_json;

namespace {

TrainWorld world_on(const std::shared_ptr<ProcessGroup>& group) {
  return {.place = group->world(), .process_group = group};
}

struct StartResult {
  int exit_code = -1;
  std::string what;
  std::string hint;
};

// Runs the task in each process, and returns how it ended there.
std::vector<StartResult> outcomes(int processes, const std::function<void(int, TrainWorld&)>& task) {
  std::vector<StartResult> all(static_cast<size_t>(processes));
  run_processes(processes, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    auto world = world_on(group);
    auto& own = all[static_cast<size_t>(process)];
    try {
      task(process, world);
      own.exit_code = 0;
    } catch (const Error& error) {
      own = {static_cast<int>(error.exit_code()), error.message(), error.hint()};
    }
  });
  return all;
}

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("together() returns what every process has found") {
  std::vector<std::vector<Values>> found(3);
  const auto all = outcomes(3, [&](int process, TrainWorld& world) {
    found[static_cast<size_t>(process)] = together(world, [&] { return Values(10 + process); });
    leave_together(world);
  });
  for (size_t i = 0; i < 3; ++i) {
    CHECK(all[i].exit_code == 0);
    CHECK(found[i] == std::vector<Values>{10, 11, 12});
  }
  CHECK(together(TrainWorld{}, [] { return Values("alone"); }) == std::vector<Values>{"alone"});
}

TEST_CASE("what fails in one process fails in all, with its exit code, its reason and its hint") {
  const auto all = outcomes(3, [](int process, TrainWorld& world) {
    together(world, [&]() -> Values {
      if (process == 1) throw DataError("no folder \xff", "name one");
      return {};
    });
  });
  for (const auto& outcome : all) CHECK(outcome.exit_code == 3);
  CHECK(all[0].what == "process 1 cannot start: no folder \xEF\xBF\xBD");  // bytes that are not UTF-8
  CHECK(all[0].hint == "name one");
  CHECK(all[1].what == "no folder \xff");
  CHECK(all[2].what == all[0].what);
}

TEST_CASE("errors of all kinds are told with their exit codes") {
  const auto all = outcomes(2, [](int process, TrainWorld& world) {
    as_process(world, [&] {
      together(world, [&]() -> Values {
        if (process == 0) throw std::bad_alloc();
        return {};
      });
    });
  });
  CHECK(all[0].exit_code == 8);
  CHECK(all[0].what == "process 0: out of memory");
  CHECK(all[1].exit_code == 8);
  CHECK(all[1].what == "process 1: process 0 cannot start: out of memory");
  CHECK_THAT(all[1].hint, ContainsSubstring("--batch-size"));
}

TEST_CASE("a process of another version is refused, whatever it says") {
  std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"version": "lockstep 9", "value": 1})", "process 1 is lockstep 9, process 0 is lockstep "},
      {"hello", "process 1 is unknown, process 0 is lockstep "}};
  if (built_commit() != "unknown") {  // without git
    cases.emplace_back(R"({"version": ")" + version_text() + R"(", "commit": "0123456789", "value": 1})",
                       "process 1 is " + version_text() + " of commit 0123456789, process 0 is lockstep ");
  }
  for (const auto& [text, what] : cases) {
    const auto all = outcomes(2, [&](int process, TrainWorld& world) {
      if (process == 1) world.process_group->gather(text);
      if (process == 0) together(world, [] { return Values(); });
    });
    CHECK(all[0].exit_code == 2);
    CHECK_THAT(all[0].what, StartsWith(what));
    CHECK_THAT(all[0].what, EndsWith(" of commit " + std::string(built_commit())));
  }
}

TEST_CASE("a process that is lost keeps no other one from leaving") {
  const auto all = outcomes(3, [](int process, TrainWorld& world) {
    if (process == 2) lockstep::testing::vanish(*world.process_group);
    leave_together(world);
  });
  for (const auto& outcome : all) CHECK(outcome.exit_code == 0);
}

TEST_CASE("errors of several processes begin with the ranks; those of one do not") {
  const auto fail = [] {
    throw NumericError("diverged", "use " + NamedOption{"cuda_graph", "off", "CudaGraph::kOff"});
  };
  CHECK_THROWS_AS(as_process({}, fail), NumericError);
  CHECK_THROWS_AS(as_process(world_of(1, {2, 2}), fail), ProcessError);
  try {
    as_process(world_of(1, {2, 2}), fail);
  } catch (const ProcessError& error) {
    CHECK(error.message() == "ranks 2-3 (process 1): diverged");
    CHECK(error.hint() == "use --cuda-graph off");
    CHECK(error.exit_code() == ExitCode::kNumeric);
  }
  CHECK_THROWS_AS(as_process(world_of(0, {1, 1}), [] { throw ReaderGoneError("gone"); }), ReaderGoneError);
}

TEST_CASE("assemble_run() asks all for their devices, and the first one's output flags count") {
  const auto before = allowed_cores();
  std::vector<TrainFlags> flags(2);
  std::vector<std::string> names(2);
  std::vector<std::vector<int>> cores(2);
  const auto all = outcomes(2, [&](int process, TrainWorld& world) {
    auto& own = flags[static_cast<size_t>(process)];
    own.devices = process == 0 ? "cpux3" : "cpu";
    own.log_every = 7 + process;
    own.metrics = "m";
    if (process == 0) own.save = "weights";
    own.print_weights_hash = process == 0;
    if (process == 0) own.resume = "auto";
    own.checkpoint_every = process == 0 ? "7" : "8";
    if (process == 0) own.batch_size = 96;
    own.lr = process == 0 ? .5 : .25;  // is compared later
    assemble_run(world, own, [] {});
    names[static_cast<size_t>(process)] = world.name() + " of " + world.device_lists();
    cores[static_cast<size_t>(process)] = allowed_cores();
  });
  REQUIRE(all[0].exit_code == 0);
  REQUIRE(all[1].exit_code == 0);
  CHECK(names[0] == "ranks 0-2 (process 0) of [cpu x 3] + [cpu]");
  CHECK(names[1] == "rank 3 (process 1) of [cpu x 3] + [cpu]");
  CHECK(cores[0] == share_of_cores(before, std::vector<size_t>{3, 1}, 0));
  CHECK(cores[1] == share_of_cores(before, std::vector<size_t>{3, 1}, 1));
  CHECK(allowed_cores() == before);
  CHECK(flags[0].metrics == "m");
  CHECK_FALSE(flags[0].quiet);
  CHECK(flags[1].log_every == 7);
  CHECK(flags[1].print_weights_hash);
  CHECK(flags[1].save.has_value());
  CHECK_FALSE(flags[1].trace);
  CHECK_FALSE(flags[1].metrics);
  CHECK(flags[1].quiet);
  CHECK(flags[1].resume.has_value());
  CHECK(flags[1].checkpoint_every == "7");
  CHECK(flags[1].batch_size == 96);
  CHECK(flags[1].lr == .25);
}

TEST_CASE("files of another process than the first are refused in all") {
  const std::vector<std::pair<std::string, std::optional<std::string> TrainFlags::*>> files = {
      {"save", &TrainFlags::save},
      {"metrics", &TrainFlags::metrics},
      {"output", &TrainFlags::output},
      {"trace", &TrainFlags::trace},
      {"checkpoint-every", &TrainFlags::checkpoint_every},
      {"resume", &TrainFlags::resume}};
  for (const auto& [name, file] : files) {
    for (const bool first_has_it : {false, true}) {
      const auto all = outcomes(2, [&, member = file](int process, TrainWorld& world) {
        TrainFlags flags;
        flags.devices = "cpu";
        if (process == 1 || first_has_it) flags.*member = "x";
        assemble_run(world, flags, [] {});
      });
      for (const auto& outcome : all) {
        CHECK(outcome.exit_code == (first_has_it ? 0 : 2));
        if (first_has_it) continue;
        CHECK(outcome.what ==
              "process 1 has --" + name + ", but process 0, which writes the files, does not have it");
        CHECK(outcome.hint == "give --" + name + " to process 0");
      }
    }
  }
}

TEST_CASE("a device list that one process cannot use is refused in all") {
  const auto all = outcomes(2, [](int process, TrainWorld& world) {
    TrainFlags flags;
    flags.devices = process == 0 ? "cpu" : "cpux0";
    assemble_run(world, flags, [] {});
  });
  CHECK(all[0].exit_code == 2);
  CHECK_THAT(all[0].what, StartsWith("process 1 cannot start: device list 'cpux0'"));
  CHECK_THAT(all[1].what, StartsWith("device list 'cpux0'"));
}

TEST_CASE("the first setting that differs is named with both values") {
  const Values first = {{"lr", .2}, {"batch_size", 128}, {"model", "lenet"}};
  auto rate = first, batch = first, model = first;
  rate["lr"] = .1;
  rate["model"] = "resnet18";
  batch["batch_size"] = 64;
  model["model"] = "resnet18";
  const auto check = [&](const std::vector<Values>& settings, const std::string& what) {
    const auto all = outcomes(static_cast<int>(settings.size()), [&](int process, TrainWorld& world) {
      agree_on_settings(world, [&] { return settings[static_cast<size_t>(process)]; });
    });
    for (const auto& outcome : all) {
      CHECK(outcome.exit_code == (what.empty() ? 0 : 2));
      CHECK(outcome.what == what);
    }
  };
  check({first, first, first}, "");
  check({first, rate}, "the settings differ: process 1 has lr 0.1 where process 0 has lr 0.2");
  check({first, first, batch, rate},
        "the settings differ: process 2 has batch size 64 where process 0 has batch size 128");
  check({first, model}, "the settings differ: process 1 has model resnet18 where process 0 has model lenet");
  CHECK_NOTHROW(agree_on_settings(TrainWorld{}, [&] { return first; }));
}

TEST_CASE("half of a launcher's variables do not stop a command of one process") {
  CHECK_NOTHROW(refuse_several_processes("eval", variables({})));
  CHECK_NOTHROW(refuse_several_processes("eval", variables({{"WORLD_SIZE", "2"}})));
}
