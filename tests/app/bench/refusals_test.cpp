// Wrong input to `lockstep bench`: one clear error, before anything is measured or written.
#include <sstream>

#include <lockstep/tests/app/bench/bench_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;

namespace {

struct Refusal {
  const char* words;
  int code;
  std::vector<std::string> said;  // what the error names
};

const Refusal kRefusals[] = {
    {"allreduce --devices cpu", 2, {"--devices cpux2"}},
    {"allreduce --iterations 0", 2, {"--iterations must be at least 1, got 0"}},
    {"allreduce --min-bytes 12Q", 2, {"--min-bytes must be a size such as 8, 512K, 16MiB or 1G"}},
    {"allreduce --min-bytes 2", 2, {"--min-bytes must be at least 4, got '2'"}},
    {"allreduce --max-bytes 17179869185G", 2, {"must be at most 1024G"}},  // 2^64 + 1 G
    {"allreduce --min-bytes 1M --max-bytes 1K",
     2,
     {"--min-bytes 1M is above --max-bytes 1K\nhint: give a smaller --min-bytes or a larger --max-bytes"}},
    {"allreduce --devices cpux2 --max-bytes 1000G --min-bytes 1000G", 8, {"GB are free"}},
    {"allreduce --devices cpux2 --devices cpu,cpu", 2, {"--devices names cpux2 twice"}},
    {"allreduce --devices cpux2 --allreduce ring --allreduce ring", 2, {"--allreduce names ring twice"}},
    {"allreduce --devices cpux2 --allreduce auto --allreduce two_shot",
     2,
     {"--allreduce names two_shot twice"}},
    {"step --devices cpu --devices cpux1", 2, {"--devices names cpu twice"}},
    {"step --repeat 0", 2, {"--repeat must be at least 1, got 0"}},
    {"step --in-flight 3", 2, {"--in-flight must be"}},
    {"step --devices foo", 2, {"'foo' is not a device"}},
    {"scaling --link nvlink4", 2, {"--predict"}},
    {"scaling --predict 8 --link fast", 2, {"alpha,beta"}},
    {"scaling --predict 8 --devices cpux2 --data synthetic --limit-train 1024 --shard optimizer --invariant",
     2,
     {"--predict with --shard cannot be combined with --invariant"}},
    {"scaling --predict 4 --devices cpux2 --data synthetic --limit-train 2",
     2,
     {"--predict compares steps of b, b/2 and b/4 images"}},
    {"partition --devices cpu", 2, {"needs 2 devices", "cpux2"}},
    {"partition --devices cpux6 --model mlp", 2, {"mlp has 5 layers", "6 devices", "at most 5"}},
    {"partition --batch-size 3", 2, {"--batch-size 3", "--micro-batches 4"}},
    {"partition --batch-size 0", 2, {"at least 1, got 0"}},
    {"partition --micro-batches 0", 2, {"at least 1, got 0"}},
    {"partition --batch-size 100000000", 8, {"GB of memory", "--batch-size"}},
    {"partition --model resnet18", 2, {"lenet or mlp"}},
    {"overlap --devices cpu", 2, {"needs 2 devices, [cpu] has 1", "cpux2"}},
    {"overlap --devices cpu --exercise 5", 2, {"needs 2 devices", "cpux2"}},
    {"overlap --devices cpux2 --devices cpux3", 2, {"takes one list of devices, not 2"}},
    {"overlap --iterations 0", 2, {"--iterations"}},
    {"overlap --size 0", 2, {"--size"}},
    {"overlap --exercise 6", 2, {"--exercise"}},
    {"overlap --devices cpux2 --size 900000", 8, {"GB of memory", "GB are free", "--size"}},
    {"reduce", 2, {"allreduce"}},
};

Words words_in(const std::string& text) {
  std::istringstream in("bench " + text);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("benchmarks refuse wrong flags before they measure") {
  for (const auto& [words, code, said] : kRefusals) {
    INFO(words);
    const auto error = refusal(program(words_in(words)), code);
    for (const auto& text : said) CHECK_THAT(error, ContainsSubstring(text));
  }
}

TEST_CASE("benchmarks refuse files that they cannot write before they measure, and leave existing ones") {
  const TempFolder folder;
  const auto existing = (folder / "old.json").string(), nowhere = (folder / "none" / "x.json").string();
  std::ofstream(existing) << "old";
  const auto refused = [](const std::string& words, const std::string& file, const std::string& said) {
    INFO(words);
    CHECK_THAT(refusal(program(words_in(words) + Words{file}), 7), ContainsSubstring(said));
  };
  for (const auto* words :
       {"allreduce --json", "partition --json", "overlap --json", "overlap --devices cpux2 --trace",
        "step --data synthetic --limit-train 64 --devices cpu --json"}) {
    refused(words, existing, "--overwrite");
  }
  refused("allreduce --devices cpux2 --json", nowhere, "does not exist\nhint: create it first: mkdir -p ");
  CHECK(read_file(existing) == "old");
}
