// train --resume RUN goes on with the run's own configuration.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train/checkpoint/resumed_runs.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/support/in_folder.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Flags of which none is the default. 640 images: 5 steps per epoch.
const Words kUnusual = {"--devices",
                        "cpux2",
                        "--split",
                        "3:1",
                        "--lr",
                        "0.05",
                        "--momentum",
                        "0.5",
                        "--weight-decay",
                        "0.001",
                        "--seed",
                        "4",
                        "--limit-train",
                        "640",
                        "--batch-size",
                        "128",
                        "--kernels",
                        "torch",
                        "--limit-test",
                        "64",
                        "--checkpoint-every",
                        "2",
                        "--keep",
                        "2",
                        "--clip-norm",
                        "1.5",
                        "--threads",
                        "1"};

const Words kShown = {"--print-weights-hash", "--quiet"};

Process resume(const std::string& run, const Words& words, std::map<std::string, std::string> env = {}) {
  return program(Words{"train", "--resume", run} + words, std::move(env));
}

std::string printed_hash(const Process& process) {
  const auto result = run_process(process);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return hash_in(result.out);
}

json plan_of(const std::string& run, const Words& flags, std::map<std::string, std::string> env = {}) {
  const auto result = run_process(resume(run, Words{"--dry-run", "--json"} + flags, std::move(env)));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return json::parse(result.out);
}

// A run that was cut in its second epoch.
std::string cut_run(const TempFolder& folder, const Words& words) {
  auto run = (folder / "run").string();
  REQUIRE(run_process(program(Words{"train", "--output", run, "--limit-steps", "7", "--quiet"} + words))
              .exit_code == 0);
  REQUIRE(newest_step(run) == 7);
  return run;
}

}  // namespace

TEST_CASE("a named run goes on with its own configuration, to the bits of the run without a break") {
  const SmallData data(704, 300), other(64, 32);
  const Words words = kUnusual + Words{"--data", data.folder(), "--epochs", "3"};
  const auto whole = printed_hash(program(Words{"train"} + words + kShown));
  const TempFolder folder;
  const auto run = cut_run(folder, words);
  CHECK(printed_hash(resume(run, kShown, {{"LOCKSTEP_DATA", other.folder()}})) == whole);
  CHECK(newest_step(run) == 15);
  CHECK(fs::exists(fs::path(run) / "checkpoints/step-00000014"));  // every 2 steps, the newest 2 and the best
  const auto resumed = events_named("resumed", metrics_in(run + "/metrics.jsonl"));
  REQUIRE(resumed.size() == 1);
  CHECK(resumed.front().dump().find("lr") == std::string::npos);
}

// Flags of the run's own configuration cannot be left out: the hints name what can be given.
TEST_CASE("a run of a ring, or of flags that --shard excludes, goes on with --shard as the error says") {
  const TempFolder folder;
  for (const auto& [own, shard, hint, given] : std::vector<std::tuple<Words, Words, std::string, Words>>{
           {{"--allreduce", "ring"},
            {"--shard", "optimizer"},
            "use --allreduce auto, or leave --shard optimizer out",
            {"--allreduce", "auto"}},
           {{"--sync", "bucketed"},
            {"--shard", "gradients"},
            "use --shard optimizer, or leave --shard gradients out",
            {"--shard", "optimizer"}}}) {
    const auto run = (folder / own.back()).string();
    REQUIRE(run_process(program(Words{"train",     "--output",           run,  "--data",
                                      "synthetic", "--limit-train",      "64", "--limit-test",
                                      "16",        "--batch-size",       "32", "--devices",
                                      "cpux2",     "--threads",          "1",  "--limit-steps",
                                      "1",         "--checkpoint-every", "1",  "--quiet"} +
                                own))
                .exit_code == 0);
    CHECK_THAT(refusal(resume(run, Words{"--dry-run"} + shard), 2), ContainsSubstring(hint));
    const auto flags = given.front() == "--shard" ? given : shard + given;
    CHECK(plan_of(run, flags).at("shard") == "optimizer");
  }
}

// Its start is read once, and its rows for validation are the same.
TEST_CASE(
    "a run with frozen parameters and a validation goes on to the bits and the end of the run without a "
    "break") {
  const TempFolder folder;
  const auto start = (folder / "start.safetensors").string();
  REQUIRE(run_process(program({"train", "--data", "synthetic", "--limit-train", "64", "--limit-test", "16",
                               "--epochs", "1", "--seed", "9", "--save", start, "--quiet"}))
              .exit_code == 0);
  const Words words = kUnusual + Words{"--data",          "synthetic", "--epochs",           "8",
                                       "--init-from",     start,       "--freeze",           "W1,b1",
                                       "--class-weights", "balanced",  "--label-smoothing",  "0.1",
                                       "--patience",      "1",         "--validation-share", "0.2"};
  const auto whole_run = (folder / "whole").string();
  const auto whole = printed_hash(program(Words{"train", "--output", whole_run} + words + kShown));
  const auto run = cut_run(folder, words);
  fs::remove(start);
  CHECK(printed_hash(resume(run, kShown)) == whole);
  const auto end = metrics_in(run + "/metrics.jsonl").back();
  const auto expected = metrics_in(whole_run + "/metrics.jsonl").back();
  CHECK(end.at("steps") == expected.at("steps"));
  CHECK(end.contains("stopped_early") == expected.contains("stopped_early"));
  CHECK(plan_of(run, {}).at("validation_share") == .2);
  // The same flags beside the run are no other training; others are.
  CHECK(plan_of(run, {"--class-weights", "balanced", "--freeze", "W1,b1", "--limit-train", "640"})
            .at("freeze") == json({"W1", "b1"}));
  CHECK_THAT(refusal(resume(run, {"--dry-run", "--freeze", "W2"}), 4), ContainsSubstring("freeze"));
  CHECK_THAT(refusal(resume(run, {"--dry-run", "--limit-train", "639"}), 4), ContainsSubstring("train"));
}

// The rate falls after epochs 2, 3 and 4: with so small a one no loss is .01% below the first.
TEST_CASE("a run on a plateau goes on from the middle of an epoch, to the bits of the run without a break") {
  const Words words = {"--data",       "synthetic", "--limit-train",      "640",
                       "--limit-test", "64",        "--batch-size",       "128",
                       "--devices",    "cpu",       "--threads",          "1",
                       "--epochs",     "4",         "--schedule",         "plateau",
                       "--gamma",      "0.5",       "--plateau-patience", "0",
                       "--lr",         "1e-6",      "--momentum",         "0.9"};
  const auto whole = printed_hash(program(Words{"train"} + words + kShown));
  const TempFolder folder;
  const auto run = cut_run(folder, words);
  // The settings of a schedule go with it.
  const auto constant = plan_of(run, {"--schedule", "constant", "--resume-anyway", "schedule"});
  CHECK(constant.at("gamma").is_null());
  CHECK(constant.at("plateau_patience").is_null());
  const auto exponential = plan_of(run, {"--schedule", "exponential", "--resume-anyway", "schedule"});
  CHECK(exponential.at("gamma") == .9);
  CHECK(printed_hash(resume(run, kShown + Words{"--limit-steps", "12"})) != whole);
  CHECK(printed_hash(resume(run, kShown)) == whole);
  CHECK(rates_in(metrics_in(run + "/metrics.jsonl")) == std::vector<double>{1e-6, 5e-7, 2.5e-7});
}

TEST_CASE("a run with a warm-up goes on with the one-cycle schedule, without it") {
  const TempFolder folder;
  const auto run = cut_run(folder, kUnusual + Words{"--data", "synthetic", "--epochs", "3", "--schedule",
                                                    "cosine", "--warmup-epochs", "1"});
  CHECK(plan_of(run, {}).at("warmup_epochs") == 1);
  const auto other = plan_of(run, {"--schedule", "onecycle", "--resume-anyway", "schedule"});
  CHECK(other.at("schedule") == "onecycle");
  CHECK(other.at("warmup_epochs") == 0);
}

TEST_CASE("more epochs extend a named run, as if it had been started with them") {
  const Words words = kUnusual + Words{"--data", "synthetic"};
  const auto longer = printed_hash(program(Words{"train", "--epochs", "3"} + words + kShown));
  const TempFolder folder;
  const auto run = cut_run(folder, words + Words{"--epochs", "2"});
  CHECK(printed_hash(resume(run, kShown)) != longer);
  CHECK(newest_step(run) == 10);
  CHECK(printed_hash(resume(run, kShown + Words{"--epochs", "3"})) == longer);
  CHECK(newest_step(run) == 15);
}

TEST_CASE("flags beside a named run must agree with it, wherever they are given") {
  const TempFolder folder;
  const auto run = cut_run(folder, kUnusual + Words{"--data", "synthetic", "--epochs", "2"});
  struct Case {
    Words flags;
    std::string both;
  };
  const Words dry = {"--dry-run", "--quiet"};
  for (const auto& [flags, both] : std::vector<Case>{
           {{"--momentum", "0.9"}, "momentum 0.5, this one has 0.9"},
           {{"--lr", ".1"}, "lr 0.05, this one has 0.1"},
           {{"--seed", "5"}, "seed 4, this one has 5"},
           {{"--batch-size", "64"}, "batch size 128, this one has 64"},
           {{"--model", "resnet18"}, "model lenet, this one has resnet18"},
           {{"--precision", "bf16"}, "precision fp32, this one has bf16"},
           {{"--schedule", "cosine"}, "schedule constant, this one has cosine"},
           {{"--limit-train", "320"}, "train rows 640, this one has 320"},
           {{"--recipe", "resnet18-pytorch"}, "recipe lenet-scratch, this one has resnet18-pytorch"},
           // These could not be combined with the run's momentum and split.
           {{"--optimizer", "adamw"}, "optimizer sgd, this one has adamw"},
           {{"--invariant"}, "invariant false, this one has true"}}) {
    INFO(flags[0]);
    CHECK_THAT(refusal(resume(run, dry + flags), 4), ContainsSubstring("the checkpoint's run has " + both));
  }
  CHECK_THAT(refusal(resume(run, dry, {{"LOCKSTEP_FLAG_MOMENTUM", "0.9"}}), 4),
             ContainsSubstring("momentum 0.5, this one has 0.9"));
  const auto file = (folder / "c.toml").string();
  write_file(file, "momentum = 0.9\n");
  CHECK_THAT(refusal(resume(run, dry + Words{"--config", file}), 4),
             ContainsSubstring("momentum 0.5, this one has 0.9"));

  CHECK_THAT(refusal(resume(run, dry, {{"LOCKSTEP_FLAG_INVARIANT", "1"}}), 4),
             ContainsSubstring("invariant false, this one has true"));

  const auto plan_with = [&](const Words& flags) { return plan_of(run, flags); };
  const auto same = plan_with({"--momentum", ".50", "--lr", "5e-2", "--seed", "4", "--optimizer", "sgd",
                               "--devices", "cpu,cpu", "--log-every", "1"});
  CHECK(same.at("momentum") == .5);
  CHECK(same.at("split") == json({96, 32}));
  CHECK(plan_with({"--momentum", "0.9", "--resume-anyway", "momentum"}).at("momentum") == .9);
  // Settings that depend on the devices are found anew on others.
  const auto elsewhere = plan_with({"--devices", "cpu"});
  CHECK(elsewhere.at("devices") == json({"cpu"}));
  CHECK(elsewhere.at("split") == json({128}));
  CHECK(elsewhere.at("kernels") == "torch");
}

TEST_CASE("a flag agrees with a named run in every way that it can be written") {
  const TempFolder folder;
  const auto run = cut_run(folder, kUnusual + Words{"--nesterov", "--data", "synthetic", "--epochs", "2"});
  for (const auto* word : {"1", "true"}) {
    CHECK(plan_of(run, {}, {{"LOCKSTEP_FLAG_NESTEROV", word}}).at("nesterov") == true);
  }
  const auto file = (folder / "c.toml").string();
  write_file(file, "nesterov = 1\nclip-norm = 15e-1\n");
  CHECK(plan_of(run, {"--config", file}).at("nesterov") == true);
  CHECK_THAT(refusal(resume(run, {"--dry-run", "--quiet"}, {{"LOCKSTEP_FLAG_NESTEROV", "0"}}), 4),
             ContainsSubstring("nesterov true, this one has false"));
}

TEST_CASE("what nobody gave is found anew when a named run goes on, and excludes no flag") {
  const TempFolder folder;
  const auto run = cut_run(folder, {"--data", "synthetic", "--limit-train", "640", "--limit-test", "64",
                                    "--epochs", "2", "--batch-size", "128", "--devices", "cpu"});
  CHECK(plan_of(run, {"--invariant", "--resume-anyway", "invariant"}).at("invariant") == true);
  CHECK(plan_of(run, {"--sync", "parameterwise"}).at("sync") == "parameterwise");
  CHECK(plan_of(run, {}, {{"OMP_THREAD_LIMIT", "1"}}).at("threads") == 1);

  const TempFolder other;
  const auto with_threads =
      cut_run(other, {"--data", "synthetic", "--limit-train", "640", "--limit-test", "64", "--epochs", "2",
                      "--batch-size", "128", "--devices", "cpu", "--threads", "2"});
  CHECK_THAT(refusal(resume(with_threads, {"--dry-run", "--quiet"}, {{"OMP_THREAD_LIMIT", "1"}}), 2),
             ContainsSubstring("state.json': --threads must be at most 1, got 2"));
}

TEST_CASE("a checkpoint is named from any folder") {
  const TempFolder folder;
  const auto run = cut_run(folder, kUnusual + Words{"--data", "synthetic", "--epochs", "2"});
  for (const auto& [from, name] :
       {std::pair{"run", "checkpoints/last"}, {"run/checkpoints", "last"}, {"run/checkpoints/last", "."}}) {
    const InFolder in(folder / from);
    CHECK(plan_of(name, {}).at("momentum") == .5);
  }
}

TEST_CASE("a setting that was changed once stays so when the run goes on again") {
  const TempFolder folder;
  const auto run = cut_run(folder, kUnusual + Words{"--data", "synthetic", "--epochs", "2"});
  printed_hash(resume(run, kShown + Words{"--resume-anyway", "lr", "--lr", "0.2", "--limit-steps", "9"}));
  const auto plan = json::parse(run_process(resume(run, {"--dry-run", "--json"})).out);
  CHECK(plan.at("lr") == .2);
  CHECK(plan.at("momentum") == .5);

  // So it does in the folder of another run, whose first checkpoint is the one that it goes on from.
  const auto other = (folder / "other").string();
  printed_hash(resume(run, kShown + Words{"--output", other, "--resume-anyway", "momentum", "--momentum",
                                          "0.25", "--limit-steps", "10"}));
  const auto result = run_process(resume(other + "/checkpoints/step-00000009",
                                         {"--output", (folder / "third").string(), "--dry-run", "--json"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto first = json::parse(result.out);
  CHECK(first.at("lr") == .2);
  CHECK(first.at("momentum") == .25);
}

TEST_CASE("data that have moved are found by LOCKSTEP_DATA, and a run's folder name does not matter") {
  const SmallData data(640, 64);
  const TempFolder folder;
  const auto before = folder / "before", after = folder / "after";
  fs::copy(data.folder(), before);
  const auto run = cut_run(folder, kUnusual + Words{"--data", before.string(), "--epochs", "2"});
  fs::rename(before, after);
  CHECK_THAT(refusal(resume(run, {"--quiet"}, {{"LOCKSTEP_DATA", ""}}), 3),
             ContainsSubstring(before.string()));
  const auto moved = run_process(resume(run, {"--dry-run", "--json"}, {{"LOCKSTEP_DATA", after.string()}}));
  INFO(moved.err);
  REQUIRE(moved.exit_code == 0);
  CHECK(json::parse(moved.out).at("data") == "after");
}

TEST_CASE("all processes go on with the configuration that process 0 has read") {
  const Words words = {"--momentum", "0.5",       "--seed", "4",         "--epochs",
                       "2",          "--kernels", "torch",  "--devices", "cpu"};
  const auto in_two = [&](const Words& common, const Words& first) {
    const auto results = run_all(small_world(common + kShown, {first, {}}));
    INFO(results[0].err << results[1].err);
    CHECK(results[0].exit_code == 0);
    CHECK(results[1].exit_code == 0);
    return hash_in(results[0].out);
  };
  const TempFolder folder;
  const auto run = (folder / "run").string();
  const auto whole = in_two(words, {});
  in_two(words + Words{"--limit-steps", "3"}, {"--output", run});
  CHECK(in_two({}, {"--resume", run}) == whole);
}

TEST_CASE("processes that had different devices find their shares anew where one has others") {
  const TempFolder folder;
  const auto run = (folder / "run").string();
  const auto in_two = [&](const Words& first, const Words& second) {
    const auto results = run_all(small_world({"--seed", "4"}, {first, second}));
    INFO(results[0].err << results[1].err);
    CHECK(results[0].exit_code == 0);
    CHECK(results[1].exit_code == 0);
    const auto resumed = events_named("resumed", metrics_in(run + "/metrics.jsonl"));
    return resumed.empty() ? std::string() : resumed.back().dump();
  };
  const Words shares = {"--split", "2:1:1", "--epochs", "2"};
  in_two(shares + Words{"--devices", "cpu", "--limit-steps", "3", "--output", run},
         shares + Words{"--devices", "cpux2", "--limit-steps", "3"});
  const Words go_on = {"--resume", run, "--devices", "cpu"};
  CHECK_THAT(in_two(go_on + Words{"--limit-steps", "4"}, {"--devices", "cpux2", "--limit-steps", "4"}),
             !ContainsSubstring("split"));
  CHECK_THAT(in_two(go_on, {"--devices", "cpu"}), ContainsSubstring("split"));
}
