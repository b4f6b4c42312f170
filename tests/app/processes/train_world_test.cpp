// Who has which ranks and GPUs in a run of several processes, its plan, and who sums between them.
#include <lockstep/tests/catch.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/processes/worlds.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::world_of;
using Values = nlohmann::ordered_json;

namespace {

TrainFlags small_flags() {
  TrainFlags flags;
  flags.data.path = "synthetic";
  flags.data.limit_train = 64;
  flags.data.limit_test = 8;
  flags.batch_size = 10;
  flags.trainer.threads = 1;
  return flags;
}

}  // namespace

TEST_CASE("ranks are counted over the processes in order, and messages tell both") {
  const auto first = world_of(0, {3, 1, 2}), last = world_of(2, {3, 1, 2});
  CHECK(first.leads());
  CHECK_FALSE(last.leads());
  CHECK(last.layout().first_rank() == 4);
  CHECK(last.layout().world_size() == 6);
  CHECK(first.name() == "ranks 0-2 (process 0)");
  CHECK(world_of(1, {3, 1, 2}).name() == "rank 3 (process 1)");
  CHECK(last.name() == "ranks 4-5 (process 2)");
  CHECK(last.replica_device(2) == "cpu of process 0");
  CHECK(last.replica_device(3) == "cpu of process 1");
  CHECK(last.replica_device(5) == "cpu of process 2");
  CHECK(first.text() == "3, 6 replicas: [cpu x 3] + [cpu] + [cpu, cpu]");
  CHECK(world_of(0, {2, 2}, "torchrun").text() == "2 (torchrun), 4 replicas: [cpu, cpu] + [cpu, cpu]");
  CHECK(world_of(0, {1, 1, 1, 1}).device_lists() == "[cpu] x 4");
  auto unknown = last;
  unknown.devices.clear();
  CHECK(unknown.name() == "process 2");
  CHECK(TrainWorld{}.single_process());
  CHECK(TrainWorld{}.leads());
}

TEST_CASE("auto is another GPU for each process of a host") {
  const World third{.process = 6, .processes = 8, .process_on_host = 2, .processes_on_host = 4};
  CHECK(local_spec("auto", third, 4) == "cuda:2");
  CHECK(local_spec("auto", third, 2) == "cuda:0");
  CHECK(local_spec("auto", third, 0) == "auto");
  CHECK(local_spec("cpux2", third, 4) == "cpux2");
}

TEST_CASE("a plan has the replicas of all processes, and the memory of its own") {
  auto flags = small_flags();
  flags.split = "1:1:1:7";
  const auto plan = make_train_plan(flags, {}, world_of(1, {3, 1}, "torchrun"));
  CHECK(plan.world_size() == 4);
  CHECK(plan.local_size() == 1);
  CHECK(plan.trainer.split == std::vector<double>{1, 1, 1, 7});
  CHECK(plan.trainer.allreduce == Allreduce::kGloo);
  const auto text = describe(plan);
  CHECK_THAT(text, ContainsSubstring("\n  processes  2 (torchrun), 4 replicas: [cpu x 3] + [cpu]\n") &&
                       ContainsSubstring("\n  devices    [cpu]: 1 replica with 1 thread, in process 1\n") &&
                       ContainsSubstring("10 images per step, split 1:1:1:7; ") &&
                       ContainsSubstring("in each process, then between them (gloo: 0.52 MB per step)"));
  const auto fields = plan_fields(plan);
  CHECK(fields.at("processes") == 2);
  CHECK(fields.at("launcher") == "torchrun");
  CHECK(fields.at("replicas") == Values{3, 1});
  CHECK(fields.at("devices") == Values{"cpu", "cpu", "cpu", "cpu"});
  CHECK(plan.replica_device(3) == "cpu of process 1");

  const auto others = make_train_plan(flags, {}, world_of(0, {3, 1}));
  CHECK(agreed_fields(flags, others) == agreed_fields(flags, plan));  // whatever the devices
  flags.trainer.threads = 2;
  CHECK(agreed_fields(flags, make_train_plan(flags, {}, world_of(1, {3, 1}))) == agreed_fields(flags, plan));
  flags.split = "even";  // three shards of 2 or 3 images there, one of 2 here
  CHECK(host_bytes(make_train_plan(flags, {}, world_of(0, {3, 1}))) >
        2 * host_bytes(make_train_plan(flags, {}, world_of(1, {3, 1}))));
  flags.split = "1:1:1:7";
  flags.data.limit_train = 63;
  CHECK(agreed_fields(flags, make_train_plan(flags, {}, world_of(1, {3, 1}))) != agreed_fields(flags, plan));
}

TEST_CASE("the first thing in which processes differ is the flag, not what follows from it") {
  const auto first_difference = [](const std::function<void(TrainFlags&)>& change) {
    auto flags = small_flags();
    const auto here = agreed_fields(flags, make_train_plan(flags, {}, world_of(0, {1, 1})));
    change(flags);
    const auto there = agreed_fields(flags, make_train_plan(flags, {}, world_of(1, {1, 1})));
    for (auto field = here.begin(); field != here.end(); ++field) {
      if (there.at(field.key()) != field.value()) return field.key();
    }
    return std::string("nothing");
  };
  CHECK(first_difference([](auto&) {}) == "nothing");
  CHECK(first_difference([](auto& flags) { flags.batch_size = 20; }) == "batch_size");
  CHECK(first_difference([](auto& flags) { flags.epochs = 3; }) == "epochs");
  CHECK(first_difference([](auto& flags) { flags.trainer.replica.optimizer.kind = OptimizerKind::kAdamW; }) ==
        "optimizer");
}

TEST_CASE("a plan of one process says nothing of processes") {
  auto flags = small_flags();
  flags.devices = "cpux2";
  const auto plan = make_train_plan(flags);
  CHECK_THAT(describe(plan), !ContainsSubstring("process"));
  CHECK(plan_fields(plan).at("processes") == 1);
  CHECK(plan_fields(plan).at("replicas") == Values::array({2}));
  CHECK(plan.device_lists() == "[cpu, cpu]");
  CHECK(plan.replica_device(1) == "cpu");
}

TEST_CASE("algorithms of one process are refused between several, gloo in one, NCCL without a GPU") {
  const auto several = world_of(0, {1, 1});
  const std::vector<torch::Device> cpu = {torch::kCPU};
  const auto refuses = [&](const TrainWorld& world, Allreduce wanted) {
    try {
      world.chosen_allreduce(wanted, cpu);
    } catch (const UsageError&) {
      return true;
    }
    return false;
  };
  for (const auto allreduce : {Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing}) {
    CHECK(TrainWorld{}.chosen_allreduce(allreduce, cpu) == allreduce);
    CHECK(refuses(several, allreduce));
  }
  CHECK(several.chosen_allreduce(Allreduce::kGloo, cpu) == Allreduce::kGloo);
  CHECK(several.chosen_allreduce(Allreduce::kAuto, cpu) == Allreduce::kGloo);
  CHECK(refuses({}, Allreduce::kGloo));
  for (const auto& world : {TrainWorld{}, several}) CHECK(refuses(world, Allreduce::kNccl));
}

TEST_CASE("between processes NCCL sums if every GPU is driven by one replica, else gloo") {
  TrainWorld world{.place = {.process = 0, .processes = 2}};
  world.devices.assign(2, {torch::Device(torch::kCUDA, 0)});  // each sees its own as the first one
  const auto gpu = [](const std::string& uuid) {
    return AllreduceSupport{.gpus = {{.uuid = uuid, .place = "node cuda:0"}}};
  };
  const auto by = [&](Allreduce wanted) { return world.chosen_allreduce(wanted, world.devices.front()); };
  world.supports = {gpu("a"), gpu("b")};
  CHECK(by(Allreduce::kAuto) == Allreduce::kNccl);
  CHECK(by(Allreduce::kNccl) == Allreduce::kNccl);
  CHECK(by(Allreduce::kGloo) == Allreduce::kGloo);
  world.supports = {gpu("a"), gpu("a")};
  CHECK(by(Allreduce::kAuto) == Allreduce::kGloo);
  CHECK_THROWS_WITH(by(Allreduce::kNccl),
                    "NCCL allows one replica per GPU, but processes 0 and 1 both drive GPU a");
  world.supports[1] = {.nccl_problem = "cuda:0 is listed twice"};
  CHECK(by(Allreduce::kAuto) == Allreduce::kGloo);
  CHECK_THROWS_WITH(by(Allreduce::kNccl), "NCCL cannot join process 1: cuda:0 is listed twice");
}

TEST_CASE("processes tell each other, list by list, what NCCL can join") {
  const std::vector<std::vector<torch::Device>> first{{torch::kCPU}, {torch::kCPU, torch::kCPU}};
  auto second = member_with(first);
  second["supports"][1] = nlohmann::json(AllreduceSupport{.gpus = {{.uuid = "u", .place = "p"}}});
  TrainWorld world;
  take_list({member_with(first), second}, 1, world);
  CHECK(world.devices == std::vector{first[1], first[1]});
  REQUIRE(world.supports.size() == 2);
  CHECK_FALSE(world.supports[0].nccl_problem.empty());  // NCCL joins no CPU
  CHECK(world.supports[1].gpus.at(0).uuid == "u");
  take_list({second}, 0, world);
  REQUIRE(world.devices.size() == 1);
  CHECK(world.devices[0] == first[0]);
  CHECK(world.supports.size() == 1);
}
