// How processes choose between NCCL and gloo, from what they might tell each other.
#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>
#include <lockstep/tests/catch.h>

#include <nlohmann/json.hpp>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr const char* kFirst = "6d3b2a10-0000-1111-2222-333344445555";
constexpr const char* kSecond = "6d3b2a10-0000-1111-2222-333344445556";
constexpr const char* kThird = "0";

// A process on this host with GPUs of these UUIDs, from cuda:0 on.
AllreduceSupport drives(const std::vector<std::string>& uuids, const std::string& host = "node1") {
  AllreduceSupport support;
  for (size_t i = 0; i < uuids.size(); ++i) {
    support.gpus.push_back({.uuid = uuids[i], .place = host + " cuda:" + std::to_string(i)});
  }
  return support;
}

Allreduce automatic(const std::vector<AllreduceSupport>& all) {
  return choose_for_all(Allreduce::kAuto, all);
}

// The algorithm, or message and hint of the UsageError.
std::string chosen(Allreduce wanted, const std::vector<AllreduceSupport>& all) {
  std::string name;
  const auto refusal =
      refusal_and_hint([&] { name = name_of(kAllreduceNames, choose_for_all(wanted, all)); });
  return name + refusal;
}

}  // namespace

TEST_CASE("processes that see one GPU each, all as cuda:0, use NCCL if the UUIDs differ, else gloo") {
  CHECK(automatic({drives({kFirst}), drives({kSecond})}) == Allreduce::kNccl);
  CHECK(automatic({drives({kFirst}), drives({kFirst})}) == Allreduce::kGloo);
  CHECK(automatic({drives({kFirst}), drives({kSecond}), drives({kFirst})}) == Allreduce::kGloo);
  CHECK(automatic({drives({kFirst}), drives({kSecond}), drives({kThird})}) == Allreduce::kNccl);
}

TEST_CASE("one GPU that two processes know by different indices or host names is one GPU") {
  CHECK(automatic({drives({kFirst, kSecond}), drives({kSecond})}) == Allreduce::kGloo);
  CHECK(automatic({drives({kFirst, kSecond}), drives({kThird})}) == Allreduce::kNccl);
  CHECK(automatic({drives({kFirst}, "container1"), drives({kFirst}, "container2")}) == Allreduce::kGloo);
}

TEST_CASE("without UUIDs GPUs are told apart by host and index") {
  CHECK(automatic({drives({""}), drives({""})}) == Allreduce::kGloo);
  CHECK(automatic({drives({""}, "node1"), drives({""}, "node2")}) == Allreduce::kNccl);
  CHECK(automatic({drives({""}), drives({kFirst})}) == Allreduce::kNccl);
  CHECK(chosen(Allreduce::kNccl, {drives({""}), drives({""})}) == "nccl");  // they may be two
}

TEST_CASE("NCCL is refused for a GPU that two processes drive, with both and the GPU") {
  CHECK(chosen(Allreduce::kNccl, {drives({kFirst}), drives({kSecond})}) == "nccl");
  CHECK(chosen(Allreduce::kNccl, {drives({kThird}), drives({kFirst}), drives({kSecond, kFirst})}) ==
        std::string("NCCL allows one replica per GPU, but processes 1 and 2 both drive GPU ") + kFirst +
            " | use allreduce gloo, which works on any devices");
  CHECK(chosen(Allreduce::kGloo, {drives({kFirst}), drives({kFirst})}) == "gloo");
}

TEST_CASE("a process whose devices NCCL cannot join makes all use gloo, or ends them") {
  auto on_cpu = drives({});
  on_cpu.nccl_problem = "NCCL works on GPUs only";
  CHECK(automatic({drives({kFirst}), on_cpu}) == Allreduce::kGloo);
  CHECK(chosen(Allreduce::kNccl, {drives({kFirst}), on_cpu}) ==
        "NCCL cannot join process 1: NCCL works on GPUs only | "
        "use allreduce gloo, which works on any devices");
}

TEST_CASE("what a process says of its GPUs arrives as it was said") {
  auto said = drives({kFirst, "", kSecond}, "a host");
  said.nccl_problem = "no\tNCCL\n";
  for (const auto& support : {said, drives({kThird}), drives({}), AllreduceSupport{}}) {
    const auto heard = nlohmann::json::parse(wire_text(support)).get<AllreduceSupport>();
    CHECK(heard.nccl_problem == support.nccl_problem);
    REQUIRE(heard.gpus.size() == support.gpus.size());
    for (size_t i = 0; i < heard.gpus.size(); ++i) {
      CHECK(heard.gpus[i].uuid == support.gpus[i].uuid);
      CHECK(heard.gpus[i].place == support.gpus[i].place);
    }
  }
}

TEST_CASE("a process names its GPUs, and no CPU") {
  const std::vector<torch::Device> devices{torch::kCPU, {torch::kCUDA, 1}, torch::kCPU};
  const auto support = support_of(devices);
  CHECK(support.nccl_problem == "NCCL works on GPUs only, but the devices include cpu");
  REQUIRE(support.gpus.size() == 1);
  CHECK(support.gpus.front().uuid == cuda_uuid(1));
  CHECK(support.gpus.front().place.ends_with(" cuda:1"));
}
