// The text of a configuration that repeats a run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/app/train/config/config_syntax.h>
#include <lockstep/app/train/config/config_text.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/temp_folder.h>
#include <lockstep/tests/support/variable.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const Words kSmall = {"--data", "synthetic", "--limit-train", "96", "--limit-test", "8"};

std::string config_of(const Words& words, const TrainWorld& world = {}) {
  const auto [flags, plan] = planned(words, world);
  return config_text(flags, plan);
}

nlohmann::ordered_json comparable(const TrainPlan& plan) {
  auto fields = plan_fields(plan);
  fields.erase("memory_estimate_bytes");  // from what is resident now
  return fields;
}

// Two processes with these numbers of replicas on the CPU.
TrainWorld two_processes(size_t first, size_t second) {
  const torch::Device cpu(torch::kCPU);
  return {.place = {.process = 0, .processes = 2},
          .devices = {std::vector(first, cpu), std::vector(second, cpu)},
          .supports = std::vector<AllreduceSupport>(2)};
}

}  // namespace

TEST_CASE("a configuration of a run makes the same plan") {
  const auto words = GENERATE(
      Words{}, Words{"--devices", "cpux2"},
      Words{"--recipe", "resnet18-fleet", "--devices", "cpux2", "--model", "lenet"},
      Words{"--recipe", "resnet18-warmup", "--model", "lenet", "--epochs", "1"},
      Words{"--optimizer", "adamw", "--lr", "0.0031", "--weight-decay", "1e-7"},
      Words{"--momentum", ".9", "--nesterov", "--clip-norm", "0.1", "--schedule", "cosine", "--warmup-epochs",
            "2"},
      Words{"--schedule", "plateau", "--plateau-patience", "3", "--ema", ".99"},
      Words{"--schedule", "exponential", "--gamma", "0.97", "--warmup-epochs", "1"},
      Words{"--recipe", "resnet18-warmup", "--model", "lenet", "--schedule", "onecycle"},
      Words{"--devices", "cpu,cpu,cpu", "--split", "3:1:2.5", "--threads", "1"},
      Words{"--invariant", "--devices", "cpux4"},
      Words{"--precision", "fp64", "--seed", "9223372036854775807"},
      Words{"--sync", "parameterwise", "--allreduce", "root", "--devices", "cpux2", "--in-flight", "2"},
      Words{"--bucket-mb", "1", "--allreduce", "ring", "--accumulate", "3", "--bn", "average", "--devices",
            "cpux2"},
      Words{"--kernels", "direct", "--deterministic", "--check-sync", "5", "--limit-steps", "3",
            "--batch-size", "7"});
  INFO(fmt::format("{}", fmt::join(words, " ")));
  const auto [flags, plan] = planned(kSmall + words);
  const auto text = config_text(flags, plan);
  const TempFolder folder;
  const auto file = (folder / "c.toml").string();
  std::ofstream(file) << text;
  const auto again = planned({"--config", file});
  CHECK(comparable(again.plan) == comparable(plan));
  CHECK(again.plan.trainer.replica.sync.bucket_bytes == plan.trainer.replica.sync.bucket_bytes);
  CHECK(config_text(again.flags, again.plan) == text);
}

TEST_CASE("what is derived is written") {
  const auto text = config_of(kSmall + Words{"--recipe", "resnet18-fleet", "--model", "lenet", "--devices",
                                             "cpux2", "--threads", "1"});
  // Two devices train with twice the recipe's batch of 256 and rate of .05.
  for (const auto* line :
       {"recipe = \"resnet18-fleet\"", "model = \"lenet\"", "data = \"synthetic\"", "limit-train = 96",
        "epochs = 10", "seed = 0", "devices = \"cpux2\"", "threads = 1", "batch-size = 512",
        "split = \"even\"", "lr = 0.1", "optimizer = \"sgd\"", "momentum = 0.9", "nesterov = false",
        "weight-decay = 0.0001", "allreduce = \"two_shot\"", "deterministic = false", "log-every = 50"}) {
    CHECK_THAT(text, ContainsSubstring("\n" + std::string(line) + "\n"));
  }
  CHECK(text.starts_with("# lockstep "));
  CHECK_THAT(config_of(kSmall + Words{"--devices", "cpu"}), ContainsSubstring("\ndevices = \"cpu\"\n"));
  CHECK_THAT(config_of(kSmall + Words{"--lr", ".1", "--seed", "7"}), ContainsSubstring("\nseed = 7\n"));
}

TEST_CASE("the folder of the data is written with its whole path, and a variable's folder, too") {
  const SmallData data(64, 8);
  const TempFolder folder;
  const auto link = folder / "it's # 1";
  std::filesystem::create_symlink(data.folder(), link);
  const auto line = "\ndata = \"" + link.string() + "\"\n";
  CHECK_THAT(config_of({"--data", link.string()}), ContainsSubstring(line));
  CHECK_THAT(config_of({"--data", std::filesystem::relative(link).string()}),
             ContainsSubstring("\ndata = \"/"));
  const Variable variable("LOCKSTEP_DATA", link.string());
  CHECK_THAT(config_of({}), ContainsSubstring(line));
  const auto odd = folder / "no \xff UTF-8";
  std::filesystem::create_symlink(data.folder(), odd);
  CHECK_THROWS_AS(config_of({"--data", odd.string()}), UsageError);
  const auto [flags, plan] = planned({"--data", odd.string()});
  const auto kept = config_text(flags, plan, kInConfig, Unwritable::kComment);
  CHECK_THAT(kept, ContainsSubstring("\n# data has a name that is not UTF-8: give it again\n") &&
                       !ContainsSubstring("\ndata =") && ContainsSubstring("\nrecipe = "));
}

TEST_CASE("the configuration of several processes has what all have in common") {
  const auto same = config_of(kSmall + Words{"--compress", "bf16"}, two_processes(2, 2));
  CHECK_THAT(
      same,
      ContainsSubstring("\n# of 2 processes, with the devices [cpu, cpu] + [cpu, cpu]: start as many\n") &&
          ContainsSubstring("\ndevices = \"cpux2\"\n") && ContainsSubstring("\nallreduce = \"gloo\"\n") &&
          ContainsSubstring("\ncompress = \"bf16\"\n"));
  CHECK_THAT(same, !ContainsSubstring("\nthreads"));
  const auto other = config_of(kSmall + Words{"--threads", "1", "--split", "1:1:1:7"}, two_processes(3, 1));
  CHECK_THAT(other, ContainsSubstring(" [cpu x 3] + [cpu]: start as many\n") &&
                        ContainsSubstring("\nthreads = 1\n") && ContainsSubstring("\nsplit = \"1:1:1:7\"\n"));
  CHECK_THAT(other, !ContainsSubstring("\ndevices"));
}
