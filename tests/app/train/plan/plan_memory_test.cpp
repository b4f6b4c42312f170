// The advice to use --shard where a run does not fit into memory.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

constexpr int64_t kNumbers = 1'000'000'000'000;  // of a model that no machine holds

// The plan of LeNet with these flags, as if it had so many parameters.
TrainPlan plan_of_huge(const Words& words) {
  auto plan = planned(Words{"--data", "synthetic", "--limit-train", "128", "--limit-test", "8"} + words).plan;
  plan.parameter_count = kNumbers;
  return plan;
}

std::string hint_of(const std::vector<TrainPlan>& plans) {
  return refusal_and_hint<MemoryError>([&] { need_memory_for(plans); });
}

}  // namespace

// The weights have 4 TB, and as much each of gradients and moments. By hand.
TEST_CASE("too little memory: where no --shard is enough the error names the one that leaves least") {
  const auto keeps = [](const std::string& shard, const std::string& left, const std::string& all,
                        const std::string& what = "weights, gradients and moments") {
    return fmt::format("; --shard {} alone is not enough: each replica keeps {} MB of {} instead of {} MB",
                       shard, left, what, all);
  };
  // LeNet's bucket takes another half of a MB.
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--devices", "cpux4", "--optimizer", "adamw"}, keeps("gradients", "7,000,001", "16,000,000")},
      {{"--devices", "cpux4", "--optimizer", "adam"}, keeps("gradients", "7,000,001", "16,000,000")},
      {{"--devices", "cpux4", "--momentum", ".9"}, keeps("gradients", "6,000,001", "12,000,000")},
      {{"--devices", "cpux4", "--ema", ".9"},
       keeps("gradients", "6,000,001", "12,000,000", "weights, gradients and average")},
      {{"--devices", "cpux2", "--optimizer", "adamw", "--precision", "fp64"},
       keeps("gradients", "20,000,001", "32,000,000")},
      {{"--devices", "cpux4", "--optimizer", "adamw", "--accumulate", "2"},
       keeps("optimizer", "10,000,000", "16,000,000")},
      {{"--devices", "cpux4"}, keeps("gradients", "5,000,001", "8,000,000", "weights and gradients")},
      {{"--devices", "cpux4", "--optimizer", "adamw", "--shard", "optimizer"},
       keeps("gradients", "7,000,001", "10,000,000")},
  };
  for (const auto& [words, says] : cases) {
    INFO(fmt::format("{}", fmt::join(words, " ")));
    CHECK_THAT(hint_of({plan_of_huge(words)}), EndsWith("or fewer replicas (--devices)" + says));
  }
}

// With AdamW four replicas take 64 bytes per parameter, 40 with their moments shared out, and 28 with their
// gradients shared out, too.
TEST_CASE("too little memory: the error names the first --shard with which the run fits") {
  const auto plan_taking = [](double bytes_per_parameter) {
    auto plan = plan_of_huge({"--devices", "cpux4", "--optimizer", "adamw"});
    plan.parameter_count = static_cast<int64_t>(static_cast<double>(available_bytes()) / bytes_per_parameter);
    return plan;
  };
  CHECK_THAT(hint_of({plan_taking(50)}), ContainsSubstring("; with --shard optimizer each replica keeps "));
  CHECK_THAT(hint_of({plan_taking(34)}), ContainsSubstring("; with --shard gradients each replica keeps "));
  CHECK_THAT(hint_of({plan_taking(20)}), ContainsSubstring("; --shard gradients alone is not enough: "));
  CHECK_NOTHROW(need_memory_for(std::vector{plan_taking(90)}));
}

// Each of two replicas takes 16 bytes per parameter, 12 or 10.
TEST_CASE("too little memory of a GPU: the error names the first --shard with which the run fits there") {
  const auto hint_taking = [](double bytes_per_parameter) {
    auto plan = plan_of_huge({"--devices", "cpux2", "--optimizer", "adamw"});
    plan.trainer.devices = {torch::Device(torch::kCUDA, 0), torch::Device(torch::kCUDA, 1)};
    plan.parameter_count = static_cast<int64_t>(.9 * 8 * (1 << 30) / bytes_per_parameter);
    return out_of_memory(
               "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 "
               "GiB of which 512.00 MiB is free.",
               plan)
        .hint();
  };
  CHECK_THAT(hint_taking(14), ContainsSubstring("; with --shard optimizer each replica keeps "));
  CHECK_THAT(hint_taking(11), ContainsSubstring("; with --shard gradients each replica keeps "));
  CHECK_THAT(hint_taking(8), ContainsSubstring("; --shard gradients alone is not enough: "));
}

TEST_CASE("too little memory: no --shard where there is one replica, nothing is left, or it is refused") {
  for (const auto& words : std::vector<Words>{
           {"--devices", "cpu", "--optimizer", "adamw"},
           {"--devices", "cpux4", "--optimizer", "adamw", "--shard", "gradients"},
           {"--devices", "cpux4", "--optimizer", "adamw", "--allreduce", "ring"},
           {"--devices", "cpux4", "--optimizer", "adamw", "--allreduce", "root"},
           {"--devices", "cpux4", "--accumulate", "2"},
           {"--devices", "cpux4", "--optimizer", "adamw", "--shard", "optimizer", "--accumulate", "2"},
           {"--devices", "cpux4", "--optimizer", "adamw", "--shard", "optimizer", "--invariant"}}) {
    INFO(fmt::format("{}", fmt::join(words, " ")));
    CHECK_THAT(hint_of({plan_of_huge(words)}), EndsWith("or fewer replicas (--devices)"));
  }
}

TEST_CASE("too little memory for several lists: the one of most replicas says what --shard leaves") {
  const Words adamw = {"--optimizer", "adamw", "--devices"};
  CHECK_THAT(hint_of({plan_of_huge(adamw + Words{"cpu"}), plan_of_huge(adamw + Words{"cpux4"}),
                      plan_of_huge(adamw + Words{"cpux2"})}),
             ContainsSubstring("all lists at once") && EndsWith("instead of 16,000,000 MB") &&
                 ContainsSubstring("--shard gradients alone is not enough: each replica keeps 7,000,001 MB"));
}

TEST_CASE("a run that torch's allocator has ended is told of --shard, too") {
  const auto plan = plan_of_huge({"--devices", "cpux4", "--optimizer", "adamw"});
  CHECK_THAT(out_of_memory("DefaultCPUAllocator: can't allocate memory", plan).hint(),
             EndsWith("; with --shard optimizer each replica keeps 10,000,000 MB of weights, gradients and "
                      "moments instead of 16,000,000 MB"));
}

// LeNet: 129,068 numbers, of which 20 * 9 + 20 are frozen.
TEST_CASE("a frozen parameter has no gradient, moments or average, and no process sends any of it") {
  const auto plan =
      planned({"--data", "synthetic", "--limit-train", "128", "--limit-test", "8", "--devices", "cpux2",
               "--optimizer", "adamw", "--ema", ".9", "--shard", "optimizer", "--freeze", "W1,b1"})
          .plan;
  const auto held = held_bytes(plan);
  CHECK(held.weights == 4 * 129'068);
  CHECK(held.gradients == 4 * 128'868);
  CHECK(held.moments == 4 * 128'868);  // half of two
  CHECK(held.average == 4 * 128'868 / 2);
  CHECK(plan.gradient_bytes() == 4 * 128'868);
}

TEST_CASE("the metrics of a run begin with what each replica keeps") {
  const auto plan = planned({"--data", "synthetic", "--limit-train", "128", "--limit-test", "8", "--devices",
                             "cpux4", "--optimizer", "adamw", "--ema", ".9", "--shard", "gradients"})
                        .plan;
  const auto json = plan_json(plan);
  CHECK(json.at("event") == "plan");
  CHECK(json.at("shard") == "gradients");
  const int64_t all = 4 * 129'068;
  CHECK(json.at("held_bytes") == nlohmann::ordered_json{{"weights", all},
                                                        {"masters", 0},
                                                        {"gradients", all / 4},
                                                        {"buckets", 4 * 129'120},
                                                        {"moments", all / 2},
                                                        {"average", all / 4}});
}

// LeNet's weights and AdamW's two moments.
TEST_CASE("a checkpoint takes memory, where there are no files for it") {
  auto plan = planned({"--data", "synthetic", "--limit-train", "128", "--limit-test", "8", "--devices",
                       "cpux2", "--optimizer", "adamw", "--shard", "optimizer"})
                  .plan;
  const auto without = host_bytes(plan);
  CHECK(checkpoint_bytes(plan) == 0);
  plan.keeps_checkpoints = true;
  CHECK(checkpoint_bytes(plan) == 12 * 129'068);
  CHECK(host_bytes(plan) - without == 12 * 129'068);
  // Each of four replicas takes 10 bytes per parameter, and process 0 12 for the checkpoint.
  auto large = plan_of_huge({"--devices", "cpux4", "--optimizer", "adamw", "--shard", "optimizer"});
  large.keeps_checkpoints = true;
  large.parameter_count = static_cast<int64_t>(static_cast<double>(available_bytes()) / 46);
  const std::vector plans = {large};
  CHECK_THROWS_AS(need_memory_for(plans), MemoryError);
  CHECK_THROWS_AS(need_memory_for(plans, [] { return false; }), MemoryError);
  CHECK_NOTHROW(need_memory_for(plans, [] { return true; }));
}
