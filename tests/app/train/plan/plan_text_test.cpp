// The text of a plan, and combinations of flags that have one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const Words kFewImages = {"--data", "synthetic", "--limit-train", "128", "--limit-test", "8"};
const Words kWarmupRecipe = {"--recipe", "resnet18-warmup", "--devices", "cpux2"};

const std::string kFp16Text =
    "  arithmetic fp16 in layers that gain by it, weights and sums in fp32, the loss scaled by 65,536 at "
    "first";
const std::string kBf16Text = "  arithmetic bf16 in layers that gain by it, weights and sums in fp32";

}  // namespace

TEST_CASE("the plan says how rows are shared, gradients summed, and in which precision layers compute") {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--devices", "cpu"}, "one replica: nothing to sum"},
      {{"--devices", "cpux2"},
       "during backward (buckets of at most 25 MB), each replica sums one part (two_shot)"},
      {{"--devices", "cpux2", "--sync", "parameterwise", "--allreduce", "root"},
       "summed parameter by parameter, on the first replica (root)"},
      {{"--devices", "cpux2", "--sync", "bucketed", "--bucket-mb", "3", "--allreduce", "ring"},
       "summed after backward (buckets of at most 3 MB), around a ring (ring)"},
      {{"--devices", "cpux2", "--batch-size", "128", "--split", "3:1"}, "128 images per step, split 96:32;"},
      {{"--devices", "cpu", "--batch-size", "128", "--split", "auto"},
       "128 images per step, 128 per replica;"},
      {{"--devices", "cpu", "--accumulate", "5"}, "each shard in 5 micro-batches"},
      {{"--devices", "cpux3", "--deterministic"}, "fp32; deterministic"},
      {{"--devices", "cpu", "--precision", "bf16"}, kBf16Text + "; lenet in fp32 on CPUs, which is faster\n"},
      {{"--devices", "cpu", "--precision", "bf16", "--kernels", "torch"},
       kBf16Text + "; torch's kernels only\n"},
      {{"--devices", "cpu", "--precision", "bf16", "--recipe", "resnet18-pytorch"}, kBf16Text + "\n"},
      {{"--devices", "cpu", "--precision", "fp16"}, kFp16Text + "; lenet in fp32 on CPUs, which is faster\n"},
      {{"--devices", "cpu", "--precision", "fp16", "--kernels", "torch"},
       kFp16Text + "; torch's kernels only\n"},
      {kWarmupRecipe + Words{"--schedule", "onecycle"}, "SGD, lr 0.2 (onecycle schedule), momentum 0.9"},
      {{"--devices", "cpu", "--schedule", "exponential"},
       "lr 0.2 (exponential schedule: times 0.9 after each epoch), seed 0"},
      {{"--devices", "cpu", "--schedule", "plateau", "--gamma", "0.5", "--plateau-patience", "1"},
       "(plateau schedule: times 0.5 where the test loss has not fallen for more than 1 epoch), seed 0"},
      {{"--devices", "cpu", "--ema", "0.999"},
       "lr 0.2, tested with an average of the weights (decay 0.999), seed 0"},
      {{"--devices", "cpux4", "--optimizer", "adam", "--shard", "optimizer"},
       "  each holds 516 KB of weights, 516 KB of gradients, 258 KB of moments; 1/4 of all moments (--shard "
       "optimizer)\n"},
      {{"--devices", "cpux4", "--ema", ".9", "--shard", "gradients"},
       "  each holds 516 KB of weights, 129 KB of gradients, 516 KB for the buckets that are summed, 129 KB "
       "of "
       "averaged weights; 1/4 of all gradients and averages (--shard gradients)\n"},
      {{"--devices", "cpux4", "--momentum", ".9", "--shard", "gradients"},
       "129 KB of moments; 1/4 of all gradients and moments (--shard gradients)\n"},
      {{"--devices", "cpux4", "--optimizer", "adamw", "--ema", ".9", "--shard", "gradients"},
       "; 1/4 of all gradients, moments and averages (--shard gradients)\n"},
      {{"--devices", "cpux4", "--optimizer", "adamw", "--ema", ".9", "--shard", "optimizer"},
       "; 1/4 of all moments and averages (--shard optimizer)\n"},
      {{"--devices", "cpux4", "--ema", ".9", "--shard", "optimizer"},
       "; 1/4 of all averages (--shard optimizer)\n"},
      {{"--devices", "cpux4", "--shard", "optimizer"},
       "  each holds 516 KB of weights, 516 KB of gradients; no moments to share out (--shard optimizer)\n"},
      {{"--devices", "cpux2", "--shard", "gradients", "--precision", "bf16", "--recipe", "resnet18-pytorch",
        "--momentum", ".9"},
       "  each holds 22 MB of weights, 45 MB of fp32 masters, 22 MB of gradients, "},
      {{"--devices", "cpu", "--shard", "optimizer"}, "one replica: nothing to share out"},
      {kWarmupRecipe + Words{"--bn", "root"}, "the first replica's batch-norm statistics"},
      {kWarmupRecipe + Words{"--bn", "average"}, "the mean of the replicas' batch-norm statistics"},
      {kWarmupRecipe + Words{"--bn", "sync"}, "batch norm with the statistics of the whole batch"},
  };
  for (const auto& [words, says] : cases) {
    INFO(fmt::format("{}", fmt::join(words, " ")));
    CHECK_THAT(plan_text(kFewImages + words), ContainsSubstring(says));
  }
}

// LeNet has 129,068 parameters, and all lie in one bucket.
TEST_CASE("the plan knows what each replica holds with and without shards") {
  const int64_t all = 4 * 129'068;
  const auto held = [](const Words& words) {
    return held_bytes(
        planned(kFewImages + Words{"--devices", "cpux4", "--optimizer", "adam", "--ema", ".9"} + words).plan);
  };
  const auto none = held({});
  CHECK(none.weights == all);
  CHECK(none.gradients == all);
  CHECK(none.moments == 2 * all);
  CHECK(none.average == all);
  CHECK(none.buckets == 0);
  CHECK(none.masters == 0);
  const auto optimizer = held({"--shard", "optimizer"});
  CHECK(optimizer.weights == all);
  CHECK(optimizer.gradients == all);
  CHECK(optimizer.moments == 2 * all / 4);
  CHECK(optimizer.average == all / 4);
  const auto gradients = held({"--shard", "gradients"});
  CHECK(gradients.gradients == all / 4);
  // The bucket has memory while it is summed: 192, 32, 25,008, 64, 102,400, 128, 1,280 and 16 numbers.
  CHECK(gradients.buckets == 4 * 129'120);
  CHECK(gradients.moments == 2 * all / 4);
}

TEST_CASE("the masters of bf16 weights count unless a parameter is frozen or the layers take fp32 weights") {
  const auto held = [](const Words& words) {
    return held_bytes(planned(kFewImages + Words{"--devices", "cpux2", "--precision", "bf16"} + words).plan);
  };
  const auto resnet = held({"--recipe", "resnet18-pytorch"});
  CHECK(resnet.masters == resnet.gradients);
  CHECK(resnet.weights == resnet.masters / 2);
  const auto frozen = held({"--recipe", "resnet18-pytorch", "--freeze", "fc.*"});
  CHECK(frozen.masters == 0);
  CHECK(frozen.weights == resnet.masters);
  CHECK(held({}).masters == 0);  // LeNet
}

TEST_CASE("combinations that make sense have a plan") {
  for (const auto& words :
       std::vector<Words>{{"--recipe", "resnet18-fleet", "--model", "lenet", "--nesterov"},
                          {"--recipe", "resnet18-fleet", "--model", "lenet", "--optimizer", "adam"},
                          {"--recipe", "resnet18-fleet", "--model", "lenet", "--optimizer", "adamw"},
                          {"--invariant", "--deterministic", "--clip-norm", "1", "--bn", "root"},
                          {"--split", "even", "--invariant", "--accumulate", "1"}}) {
    INFO(fmt::format("{}", fmt::join(words, " ")));
    CHECK_NOTHROW(planned(kFewImages + Words{"--devices", "cpux2"} + words));
  }
}

TEST_CASE("a split that leaves the evaluated batch-norm statistics untrained is refused") {
  const Words words =
      kFewImages + Words{"--recipe", "resnet18-pytorch", "--batch-size", "64", "--devices", "cpux2"};
  for (const std::string split : {"0:1", "1:1000"}) {  // 1/1001 of 64 rows is no row
    CHECK_THAT(refusal_and_hint([&] {
                 planned(words + Words{"--split", split});
               }),
               ContainsSubstring("--split " + split) && ContainsSubstring("--bn root") &&
                   ContainsSubstring(" | use --bn sync or --bn average"));
  }
  // All replicas count, the first one has rows, the model has no batch norm, all have the same ones.
  for (const Words& more :
       {Words{"--split", "0:1", "--bn", "average"}, Words{"--split", "1:0"},
        Words{"--split", "0:1", "--model", "lenet"}, Words{"--split", "0:1", "--bn", "sync"}}) {
    INFO(fmt::format("{}", fmt::join(more, " ")));
    CHECK_NOTHROW(planned(words + more));
  }
}
