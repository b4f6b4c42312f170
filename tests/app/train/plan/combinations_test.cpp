// Combinations of options that are refused: by the library with their keys, and by the program with their
// flags.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer_options.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train_command.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Refused {
  std::function<void(TrainerOptions&)> change;  // empty: the library does not know the flags
  Words keys;
  Words words;      // empty: no flags say this
  Words flags;      // that the message names
  Words says = {};  // the library's message and hint, beside the keys
};

Trace any_trace;

void invariant(TrainerOptions& options) { options.replica.invariant = true; }
void graph(TrainerOptions& options) { options.replica.cuda_graph = CudaGraph::kOn; }
void tuned(TrainerOptions& options) { options.auto_split = true; }
void synced(TrainerOptions& options) { options.bn = BnPolicy::kSync; }
void compressed(TrainerOptions& options) { options.compress = Compress::kBf16; }
void sharded(TrainerOptions& options) { options.shard = Shard::kOptimizer; }
void shards_gradients(TrainerOptions& options) { options.shard = Shard::kGradients; }
void traced(TrainerOptions& options) { options.replica.trace = &any_trace; }

std::function<void(TrainerOptions&)> both(void (*one)(TrainerOptions&),
                                          const std::function<void(TrainerOptions&)>& other) {
  return [=](TrainerOptions& options) {
    one(options);
    other(options);
  };
}

const std::vector<Refused> kRefused = {
    {both(invariant,
          [](auto& o) {
            o.split = {3, 1};
          }),
     {"invariant", "split"},
     {"--invariant", "--split", "3:1"},
     {"--invariant", "--split"}},
    {both(invariant, tuned),
     {"invariant", "auto_split"},
     {"--invariant", "--split", "auto"},
     {"--invariant", "--split auto"}},
    {both(invariant, [](auto& o) { o.accumulate = 2; }),
     {"invariant", "accumulate"},
     {"--invariant", "--accumulate", "2"},
     {"--invariant", "--accumulate"}},
    {both(invariant, [](auto& o) { o.replica.sync.mode = SyncMode::kBucketed; }),
     {"invariant", "sync"},
     {"--invariant", "--sync", "bucketed"},
     {"--invariant", "--sync"}},
    {both(invariant, [](auto& o) { o.replica.sync.bucket_bytes = 1 << 20; }),
     {"invariant", "sync"},
     {"--invariant", "--bucket-mb", "5"},
     {"--invariant", "--bucket-mb"}},
    {both(invariant, [](auto& o) { o.replica.sync.unused = UnusedParameters::kZero; }),
     {"invariant", "sync"},
     {},
     {}},
    {both(invariant, [](auto& o) { o.replica.sync.hook = bf16_hook(); }), {"invariant", "sync"}, {}, {}},
    {{}, {}, {"--invariant", "--sync", "overlapped"}, {"--invariant", "--sync"}},  // has no effect
    {{}, {}, {"--invariant", "--allreduce", "ring"}, {"--invariant", "--allreduce"}},
    {{}, {}, {"--patience", "3"}, {"--patience", "--validation-share"}},
    {{},
     {},
     {"--data", "/nonexistent", "--synthetic-shape", "3x32x32"},
     {"--synthetic-shape", "--data synthetic"}},
    {{},
     {},
     {"--program", "net.pt2", "--loss", "mse", "--label-smoothing", ".1"},
     {"--label-smoothing", "--loss classification"}},
    {{},
     {},
     {"--program", "net.pt2", "--loss", "own", "--class-weights", "balanced"},
     {"--class-weights", "--loss classification"}},
    {both(invariant, [](auto& o) { o.bn = BnPolicy::kAverage; }),
     {"invariant", "bn"},
     {"--invariant", "--bn", "average"},
     {"--invariant", "--bn"}},
    {both(invariant, synced),
     {"invariant", "bn"},
     {"--invariant", "--bn", "sync"},
     {"--invariant", "--bn sync"},
     {"BnPolicy::kSync"}},
    {both(invariant, compressed),
     {"invariant", "compress"},
     {"--invariant", "--compress", "bf16"},
     {"--invariant", "--compress"}},
    {both(compressed, [](auto& o) { o.replica.precision = Precision::kFp64; }),
     {"compress", "precision"},
     {"--compress", "fp16", "--precision", "fp64"},
     {"--compress", "--precision fp64"},
     {"Precision::kFp64"}},
    {both(compressed, [](auto& o) { o.allreduce = Allreduce::kNccl; }),
     {"compress", "allreduce"},
     {"--compress", "fp16", "--allreduce", "nccl"},
     {"--compress", "--allreduce nccl"},
     {"allreduce nccl"}},
    {both(compressed, [](auto& o) { o.replica.sync.hook = bf16_hook(); }),
     {"compress", "hook"},
     {},
     {},
     {"sync.hook"}},
    {both(sharded, [](auto& o) { o.allreduce = Allreduce::kRing; }),
     {"shard", "allreduce"},
     {"--shard", "optimizer", "--allreduce", "ring"},
     {"--shard optimizer", "--allreduce ring"},
     {"allreduce ring", "in the order of ranks", "use allreduce auto, or leave shard optimizer out"}},
    {both(sharded, [](auto& o) { o.allreduce = Allreduce::kRoot; }),
     {"shard", "allreduce"},
     {"--shard", "optimizer", "--allreduce", "root"},
     {"--shard optimizer", "--allreduce root"},
     {"allreduce root"}},
    {both(sharded, compressed),
     {"shard", "compress"},
     {"--shard", "optimizer", "--compress", "bf16"},
     {"--shard optimizer", "--compress"},
     {"use compress none, or leave shard optimizer out"}},
    {both(sharded, [](auto& o) { o.replica.sync.hook = bf16_hook(); }),
     {"shard", "hook"},
     {},
     {},
     {"sync.hook"}},
    {both(shards_gradients, graph),
     {"shard", "cuda_graph"},
     {"--shard", "gradients", "--cuda-graph", "on"},
     {"--shard gradients", "--cuda-graph on"},
     {"CudaGraph::kOn", "lose memory"}},
    {both(sharded, both(graph, [](auto& o) { o.replica.clip_norm = 1; })),
     {"shard", "cuda_graph"},
     {"--shard", "optimizer", "--cuda-graph", "on", "--clip-norm", "1"},
     {"--shard optimizer", "--cuda-graph on"},
     {"CudaGraph::kOn", "the norm by which gradients are clipped"}},
    {both(shards_gradients, [](auto& o) { o.accumulate = 2; }),
     {"shard", "accumulate"},
     {"--shard", "gradients", "--accumulate", "2"},
     {"--shard gradients", "--accumulate"},
     {"Shard::kOptimizer"}},
    {both(shards_gradients, [](auto& o) { o.replica.sync.mode = SyncMode::kBucketed; }),
     {"shard", "sync"},
     {"--shard", "gradients", "--sync", "bucketed"},
     {"--shard gradients", "--sync bucketed"},
     {"Shard::kOptimizer"}},
    {both(shards_gradients, [](auto& o) { o.auto_split = true; }),
     {"auto_split", "shard"},
     {"--shard", "gradients", "--split", "auto"},
     {"--split auto", "--shard gradients"},
     {"split = {3, 1}"}},
    {both(shards_gradients, invariant),
     {"shard", "invariant"},
     {"--shard", "gradients", "--invariant"},
     {"--shard gradients", "--invariant"},
     {"use Shard::kOptimizer, on 1, 2, 4 or 8 replicas, or leave invariant out"}},
    {both(graph, traced),
     {"cuda_graph", "trace"},
     {"--cuda-graph", "on", "--trace", "t.json"},
     {"--cuda-graph on", "--trace"},
     {"CudaGraph::kOn"}},
    {both(graph, invariant),
     {"cuda_graph", "invariant"},
     {"--cuda-graph", "on", "--invariant"},
     {"--cuda-graph on", "--invariant"},
     {"CudaGraph::kOn"}},
    {both(graph, tuned),
     {"cuda_graph", "auto_split"},
     {"--cuda-graph", "on", "--split", "auto"},
     {"--cuda-graph on", "--split auto"},
     {"CudaGraph::kOn"}},
    {both(graph, [](auto& o) { o.replica.precision = Precision::kFp16; }),
     {"precision", "cuda_graph"},
     {"--precision", "fp16", "--cuda-graph", "on"},
     {"--precision fp16", "--cuda-graph on"},
     {"Precision::kFp16", "CudaGraph::kOn"}},
    {[](auto& o) {
       o.replica.precision = Precision::kFp16;
       o.in_flight = 2;
     },
     {"precision", "in_flight"},
     {"--precision", "fp16", "--in-flight", "2"},
     {"--precision fp16", "--in-flight"},
     {"Precision::kFp16"}},
    {both(graph, synced),
     {"cuda_graph", "bn"},
     {"--cuda-graph", "on", "--bn", "sync"},
     {"--cuda-graph on", "--bn sync"},
     {"CudaGraph::kOn", "BnPolicy::kSync"}},
    {both(graph, [](auto& o) { o.replica.wait_for_device = true; }),
     {"cuda_graph", "wait_for_device"},
     {},
     {},
     {"CudaGraph::kOn"}},
    {both(tuned,
          [](auto& o) {
            o.split = {1, 1};
          }),
     {"auto_split", "split"},
     {},
     {}},
    {both(tuned, synced),
     {"auto_split", "bn"},
     {"--split", "auto", "--bn", "sync"},
     {"--split auto", "--bn sync"},
     {"BnPolicy::kSync"}},
    {{}, {}, {"--deterministic", "--split", "auto"}, {"--deterministic", "--split auto"}},
    {{}, {}, {"--sync", "parameterwise", "--bucket-mb", "5"}, {"--sync parameterwise", "--bucket-mb"}},
    {[](auto& o) { o.replica.optimizer = {.kind = OptimizerKind::kAdamW, .momentum = .9}; },
     {"optimizer", "momentum"},
     {"--optimizer", "adamw", "--momentum", ".9"},
     {"--optimizer adamw", "--momentum"},
     {"OptimizerKind::kAdamW"}},
    {{}, {}, {"--optimizer", "adamw", "--momentum", "0"}, {"--optimizer adamw", "--momentum"}},
    {[](auto& o) { o.replica.optimizer = {.kind = OptimizerKind::kAdam, .momentum = .9}; },
     {"optimizer", "momentum"},
     {"--optimizer", "adam", "--momentum", ".9"},
     {"--optimizer adam ", "--momentum"},
     {"OptimizerKind::kAdam "}},
    {[](auto& o) { o.replica.optimizer = {.kind = OptimizerKind::kAdamW, .nesterov = true}; },
     {"optimizer", "nesterov"},
     {"--optimizer", "adamw", "--nesterov"},
     {"--optimizer adamw", "--nesterov"},
     {"OptimizerKind::kAdamW"}},
    {[](auto& o) { o.replica.optimizer = {.weight_decay = .1, .factory = [](auto) { return nullptr; }}; },
     {"factory", "weight_decay"},
     {},
     {}},
    {[](auto& o) { o.replica.optimizer.nesterov = true; },
     {"nesterov", "momentum"},
     {"--nesterov"},
     {"--nesterov", "--momentum"},
     {"momentum is 0"}},
    {{}, {}, {"--recipe", "resnet18-fleet", "--nesterov", "--momentum", "0"}, {"--nesterov", "--momentum"}},
    {[](auto& o) { o.lr = {.schedule = Schedule::kOneCycle, .warmup_steps = 2}; },
     {"schedule", "warmup_steps"},
     {"--schedule", "onecycle", "--warmup-epochs", "1"},
     {"--schedule onecycle", "--warmup-epochs"},
     {"Schedule::kOneCycle"}},
    {[](auto& o) { o.lr = {.schedule = Schedule::kCosine, .function = [](int64_t) { return .1; }}; },
     {"lr_function", "schedule"},
     {},
     {},
     {"lr.function"}},
    {[](auto& o) { o.lr = {.warmup_steps = 2, .function = [](int64_t) { return .1; }}; },
     {"lr_function", "warmup_steps"},
     {},
     {},
     {"lr.function"}},
    {{}, {}, {"--gamma", ".5"}, {"--gamma", "--schedule exponential", "--schedule plateau"}},
    {{}, {}, {"--schedule", "cosine", "--gamma", ".9"}, {"--gamma", "--schedule exponential"}},
    {{},
     {},
     {"--schedule", "exponential", "--plateau-patience", "10"},
     {"--plateau-patience", "--schedule plateau"}},
    {{}, {}, {"--quiet", "--progress", "bar"}, {"--quiet", "--progress bar"}},
    {{}, {}, {"--print-config", "--dry-run"}, {"--print-config", "--dry-run"}},
    {{}, {}, {"--print-config", "--json"}, {"--print-config", "--json"}},
};

// Combinations that only devices and the world exclude.
const std::vector<Refused> kRefusedHere = {
    {[](auto& o) {
       o.devices.resize(3, torch::kCPU);
       invariant(o);
     },
     {"invariant"},
     {"--invariant", "--devices", "cpux3"},
     {"--invariant"},
     {"3 replicas", "1, 2, 4 or 8"}},
    {[](auto& o) {
       o.split = {1, 1, 1};
     },
     {"split"},
     {"--split", "1:1:1"},
     {"--split 1:1:1"},
     {"split cannot be used", "for 2 replicas"}},
    {compressed, {"compress"}, {"--compress", "bf16"}, {"--compress bf16"}, {"compress bf16"}},
    {graph,
     {"cuda_graph"},
     {"--cuda-graph", "on"},
     {"--cuda-graph on"},
     {"CudaGraph::kOn needs a GPU, but the devices are [cpu, cpu]"}},
    {[](auto& o) { o.replica.precision = Precision::kTf32; },
     {"precision"},
     {"--precision", "tf32"},
     {"--precision tf32"},
     {"Precision::kTf32 needs a GPU, but the devices are [cpu, cpu]"}},
};

// The error of this code as the program shows it. It must have the exit code of usage, and a hint.
template <class Code>
Error refusal(Code code) {
  try {
    code();
  } catch (const UsageError&) {
    const auto shown = as_error(std::current_exception());
    CHECK(shown.exit_code() == ExitCode::kUsage);
    CHECK_FALSE(shown.hint().empty());
    return shown;
  }
  FAIL("accepted");
  throw;
}

void check_library(const Refused& row) {
  if (!row.change) return;
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  row.change(options);
  INFO(fmt::format("{}", fmt::join(row.keys, " ")));
  try {
    options.validate();
    FAIL("accepted");
  } catch (const UsageError& error) {
    CHECK(error.options() == row.keys);
    for (const auto& words : row.says) CHECK_THAT(error.what(), ContainsSubstring(words));
    CHECK_THAT(error.what(), !ContainsSubstring("--"));  // a library knows no flags
    CHECK_FALSE(error.hint().empty());
  }
}

void check_flags(const Refused& row, const std::function<void(const TrainFlags&)>& plan) {
  if (row.words.empty()) return;
  INFO(fmt::format("{}", fmt::join(row.words, " ")));
  auto words = row.words;
  if (std::ranges::find(words, "--devices") == words.end()) words.insert(words.end(), {"--devices", "cpux2"});
  const auto error = refusal([&] { plan(parsed_flags(words)); });
  for (const auto& flag : row.flags) CHECK_THAT(error.message(), ContainsSubstring(flag));
}

}  // namespace

TEST_CASE("a combination that makes no sense is refused, by the library with keys and by flags with flags") {
  const auto check = [](const TrainFlags& flags) { check_combinations(flags, recipe_of(flags)); };
  for (const auto& row : kRefused) {
    check_library(row);
    check_flags(row, check);
  }
}

TEST_CASE("a combination that these devices exclude is refused when they are known") {
  for (const auto& row : kRefusedHere) {
    check_library(row);
    check_flags(row, [](const TrainFlags& flags) {
      check_combinations(flags, recipe_of(flags));  // accepts it
      check_train_values(flags);
    });
  }
}

TEST_CASE("similar combinations that make sense are accepted") {
  for (const auto& words : std::vector<Words>{
           {"--recipe", "resnet18-fleet", "--nesterov"},
           {"--recipe", "resnet18-fleet", "--optimizer", "adamw"},
           {"--cuda-graph", "auto", "--trace", "t.json"},
           {"--cuda-graph", "on"},
           {"--schedule", "onecycle", "--warmup-epochs", "0"},
           {"--schedule", "onecycle", "--recipe", "resnet18-warmup"},
           {"--schedule", "exponential", "--gamma", ".5"},
           {"--schedule", "plateau", "--warmup-epochs", "1", "--gamma", ".5", "--plateau-patience", "0"},
           {"--compress", "bf16", "--allreduce", "gloo"},
           {"--compress", "bf16", "--precision", "bf16"},
           {"--compress", "fp16", "--precision", "fp16", "--in-flight", "1"},
           {"--invariant", "--precision", "fp16", "--ema", ".9"},
           {"--invariant", "--bn", "root"},
           {"--shard", "optimizer", "--accumulate", "2"},
           {"--shard", "optimizer", "--invariant"},
           {"--shard", "optimizer", "--clip-norm", "1", "--sync", "parameterwise"},
           {"--split", "even", "--invariant", "--accumulate", "1"}}) {
    INFO(fmt::format("{}", fmt::join(words, " ")));
    const auto flags = parsed_flags(words);
    CHECK_NOTHROW(check_combinations(flags, recipe_of(flags)));
  }
}

TEST_CASE("what the hints of --shard say is accepted, on any number of replicas") {
  for (const auto& words : std::vector<Words>{{"--shard", "optimizer", "--allreduce", "auto"},
                                              {"--shard", "optimizer", "--compress", "none"},
                                              {"--shard", "gradients"},  // without --invariant
                                              {"--shard", "optimizer", "--sync", "bucketed"},
                                              {"--shard", "optimizer", "--accumulate", "2"}}) {
    for (const char* devices : {"cpu", "cpux2", "cpux3"}) {
      INFO(fmt::format("{} {}", fmt::join(words, " "), devices));
      const auto flags = parsed_flags(words + Words{"--devices", devices});
      CHECK_NOTHROW(check_combinations(flags, recipe_of(flags)));
      CHECK_NOTHROW(check_train_values(flags));
    }
  }
}

TEST_CASE("where a text names options the program writes its flags") {
  const auto shown = [](const ErrorText& text) {
    return as_error(std::make_exception_ptr(FailedError("it failed", text))).hint();
  };
  CHECK(shown("use " + NamedOption{"cuda_graph", "auto", "CudaGraph::kAuto"}) == "use --cuda-graph auto");
  CHECK(shown("replace it with " + NamedOption{"overwrite", "", "overwrite = true"}) ==
        "replace it with --overwrite");
  CHECK(shown(NamedOption{"bucket_bytes"} + " or " + NamedOption{"auto_split"}) ==
        "--bucket-mb or --split auto");
  CHECK(shown("") == "");
  const FailedError error("it failed", "use " + NamedOption{"bn", "sync", "BnPolicy::kSync"} + ", or wait");
  CHECK(error.hint() == "use BnPolicy::kSync, or wait");
  CHECK(std::string(error.what()) == "it failed\nhint: use BnPolicy::kSync, or wait");
}
