// The tests of what a process that fails tells the others, and of what it says where it has lost one of them.
#include <lockstep/tests/catch.h>

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/support/error.h>

using namespace lockstep;

namespace {

constexpr const char* kVerdict = "process 1 of 2 (node, pid 7) does not answer";

// Has lost process 1.
class TellingProcessGroup : public ProcessGroup {
 public:
  const World& world() const override { return world_; }
  std::vector<std::string> gather(const std::string& own) override { return {own, own}; }
  std::vector<std::unique_ptr<Channel>> make_channels(int) override { return {}; }

  std::exception_ptr explain(const std::exception_ptr& error, const std::string& name) noexcept override {
    const auto own = as_error(error);
    told.push_back(name + ": " + own.message());
    if (own.exit_code() != ExitCode::kPeer) return error;
    return std::make_exception_ptr(PeerError(kVerdict, "see its last output"));
  }

  std::vector<std::string> told;

 private:
  const World world_{.process = 0, .processes = 2};
};

struct Ending {
  Error error{ExitCode::kDone, "nothing was thrown"};
  std::vector<std::string> told = {};
};

// How process 0 with two replicas ends by what the action throws.
Ending ending_of(const std::function<void()>& action) {
  const auto group = std::make_shared<TellingProcessGroup>();
  TrainWorld world{.place = group->world()};
  Ending ending;
  try {
    as_process(world, [&] {
      world.process_group = group;
      world.devices = {{torch::kCPU, torch::kCPU}, {torch::kCPU}};
      action();
    });
  } catch (const ProcessError& error) {
    ending.error = error;
  }
  ending.told = group->told;
  return ending;
}

}  // namespace

TEST_CASE("a process that has lost another one says what all know of it") {
  const auto ending = ending_of([] { throw PeerError("allreduce 3 of 5 float32 failed", "see others"); });
  CHECK(ending.error.exit_code() == ExitCode::kPeer);
  CHECK(ending.error.message() == std::string("ranks 0-1 (process 0): ") + kVerdict);
  CHECK(ending.error.hint() == "see its last output");
  CHECK(ending.told == std::vector<std::string>{"ranks 0-1 (process 0): allreduce 3 of 5 float32 failed"});
}

TEST_CASE("a process tells the others an error of its own, and ends by it") {
  const auto ending = ending_of([] { throw OutputError("the disk is full", "free some space"); });
  CHECK(ending.error.exit_code() == ExitCode::kOutput);
  CHECK(ending.error.message() == std::string("ranks 0-1 (process 0): the disk is full"));
  CHECK(ending.error.hint() == "free some space");
  CHECK(ending.told == std::vector<std::string>{"ranks 0-1 (process 0): the disk is full"});

  const auto memory = ending_of([] { throw std::bad_alloc(); });
  CHECK(memory.error.exit_code() == ExitCode::kMemory);
  CHECK(memory.told == std::vector<std::string>{"ranks 0-1 (process 0): out of memory"});
}

TEST_CASE("a process that ends well tells nothing, nor does one that has not joined") {
  CHECK(ending_of([] {}).told.empty());

  const auto group = std::make_shared<TellingProcessGroup>();
  TrainWorld world{.place = group->world(), .process_group = group};
  world.process_group = nullptr;
  CHECK_THROWS_AS(as_process(world, [] { throw DeviceError("nobody came"); }), ProcessError);
}

TEST_CASE("a process whose reader is gone ends without a message, and tells the others why") {
  const auto group = std::make_shared<TellingProcessGroup>();
  TrainWorld world{.place = group->world(), .process_group = group};
  CHECK_THROWS_AS(as_process(world, [] { throw ReaderGoneError("gone"); }), ReaderGoneError);
  REQUIRE(group->told.size() == 1);
  CHECK(group->told[0].ends_with(": gone"));
}
