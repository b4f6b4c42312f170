// Flags of `lockstep train` about replicas: how gradients are summed, which rows each replica gets, which
// batch-norm statistics are evaluated, and which runs give the same bits.
#include <lockstep/tests/catch.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>

#include <lockstep/tests/app/files/saved_weights.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

struct Trained {
  std::vector<json> steps;
  std::vector<double> weights;
};

Trained trained(const SmallData& data, const Words& words) {
  const TempFolder folder;
  const auto file = (folder / "w").string();
  const auto events =
      metrics_of(Words{"--data", data.folder(), "--epochs", "1", "--log-every", "1", "--save", file} + words);
  return {events_named("step", events), values_of(read_weights(file))};
}

double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double result = 0;
  for (size_t i = 0; i < a.size(); ++i) result = std::max(result, std::abs(a[i] - b[i]));
  return result;
}

// The events of --trace.
json traced(const SmallData& data, const Words& words) {
  const TempFolder folder;
  const auto file = (folder / "trace.json").string();
  const auto result =
      run_process(train(Words{"--data", data.folder(), "--epochs", "1", "--trace", file} + words));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("trace written to " + file + "\n"));
  return json::parse(read_file(file));
}

// Spans of a replica whose names begin so: on its computing thread (0) or its communication thread (1).
std::vector<json> spans(const json& trace, int replica, int thread, const std::string& name) {
  std::vector<json> found;
  for (const auto& event : trace) {
    if (event.at("ph") == "X" && event.at("pid") == replica && event.at("tid") == thread &&
        event.at("name").get<std::string>().rfind(name, 0) == 0)
      found.push_back(event);
  }
  return found;
}

}  // namespace

// tests/parallel/trainer_whole_batch_test.cpp has every pair.
TEST_CASE("every --sync and --allreduce gives the weights of one replica") {
  const SmallData data(300, 10);
  const Words words = {"--limit-train", "300", "--precision", "fp64"};
  const auto alone = trained(data, words);
  REQUIRE(alone.steps.size() == 3);
  for (const Words& ways : {Words{"--sync", "parameterwise", "--allreduce", "root"},
                            {"--sync", "bucketed", "--bucket-mb", "1", "--allreduce", "ring"},
                            {"--sync", "overlapped", "--allreduce", "two_shot"}}) {
    INFO(ways[1]);
    const auto together = trained(data, words + ways + Words{"--devices", "cpux3"});
    CHECK(furthest(together.weights, alone.weights) < 1e-12);
    REQUIRE(together.steps.size() == alone.steps.size());
    for (size_t i = 0; i < alone.steps.size(); ++i) {
      CHECK(together.steps[i].at("loss").get<double>() ==
            Approx(alone.steps[i].at("loss").get<double>()).epsilon(1e-9));
      CHECK(together.steps[i].at("top1") == alone.steps[i].at("top1"));
    }
  }
}

TEST_CASE("with two replicas root, two_shot and ring give the same bits") {
  const SmallData data(300, 10);
  const Words words = {"--data", data.folder(), "--limit-train", "300", "--devices", "cpux2"};
  const auto root = weights_hash(words + Words{"--allreduce", "root", "--sync", "parameterwise"});
  CHECK(weights_hash(words + Words{"--allreduce", "two_shot"}) == root);
  CHECK(weights_hash(words + Words{"--allreduce", "ring", "--sync", "bucketed"}) == root);
}

TEST_CASE("--trace is JSON with the spans of each replica's two threads") {
  const SmallData data(300, 10);
  const auto trace =
      traced(data, {"--limit-train", "300", "--devices", "cpux2", "--sync", "bucketed", "--accumulate", "2"});
  for (const int replica : {0, 1}) {
    INFO("replica " << replica);
    CHECK(spans(trace, replica, 0, "forward").size() == 6);  // three steps of two micro-batches
    CHECK(spans(trace, replica, 0, "backward").size() == 6);
    CHECK(spans(trace, replica, 0, "update").size() == 3);
    const auto backward = spans(trace, replica, 0, "backward"), sums = spans(trace, replica, 1, "allreduce");
    REQUIRE(sums.size() == 3);  // LeNet is one bucket, summed once per step
    for (size_t step = 0; step < sums.size(); ++step) {
      const auto& last = backward[2 * step + 1];
      CHECK(sums[step].at("ts").get<double>() >=
            last.at("ts").get<double>() + last.at("dur").get<double>() - .01);
    }
    CHECK(spans(trace, replica, 0, "allreduce").empty());
  }
  std::set<std::string> names;
  for (const auto& event : trace) {
    if (event.at("ph") == "M") names.insert(event.at("args").value("name", ""));
    if (event.at("ph") == "X") CHECK(event.at("dur") >= 0);
  }
  for (const auto* name : {"replica 0", "replica 1", "compute", "communication"})
    CHECK(names.count(name) == 1);
}

TEST_CASE("--sync parameterwise sums each parameter alone; --bucket-mb limits the size of a bucket") {
  const SmallData data(4, 4);
  const auto lenet = traced(data, {"--limit-train", "4", "--devices", "cpux2", "--sync", "parameterwise"});
  CHECK(spans(lenet, 1, 1, "allreduce").size() == 8);
  const Words resnet = {"--recipe", "resnet18-pytorch", "--limit-train", "2", "--devices", "cpux2"};
  const auto wide = spans(traced(data, resnet), 0, 1, "allreduce");
  const auto narrow = spans(traced(data, resnet + Words{"--bucket-mb", "8"}), 0, 1, "allreduce");
  CHECK(wide.size() >= 2);    // 44.7 MB in buckets of 25 MB
  CHECK(narrow.size() >= 5);  // some layers alone take 9.4 MB
  CHECK(narrow.size() > wide.size());
}

TEST_CASE("--split divides the rows of a batch by shares") {
  const SmallData data(128, 10);
  const Words words = {"--limit-train", "128", "--devices", "cpux2"};
  const auto trace = traced(data, words + Words{"--split", "0:1"});
  CHECK(spans(trace, 0, 0, "forward").empty());
  CHECK(spans(trace, 1, 0, "forward").size() == 1);
  const auto even = trained(data, words + Words{"--precision", "fp64"});
  for (const auto* split : {"3:1", "1:0", ".5:2.25"}) {
    INFO(split);
    CHECK(furthest(trained(data, words + Words{"--precision", "fp64", "--split", split}).weights,
                   even.weights) < 1e-12);
  }
}

TEST_CASE("--split auto settles on shares, prints them once, and uses them") {
  const SmallData data(640, 10);
  const TempFolder folder;
  const auto file = (folder / "m").string();
  const auto result = run_process(train({"--data", data.folder(), "--batch-size", "64", "--devices", "cpux2",
                                         "--split", "auto", "--epochs", "4", "--metrics", file}));
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("64 images per step, shares found by timing the first steps;"));
  const std::regex settled(
      R"(split settled after step (\d+): (0\.\d{3}) : (0\.\d{3}) of a batch \((\d+) : (\d+) images\))");
  int count = 0;
  for (const auto& line : lines(result.out)) {
    std::smatch match;
    if (!std::regex_match(line, match, settled)) continue;
    ++count;
    CHECK(std::stoi(match[1]) <= 35);  // five looks of seven steps
    CHECK(std::stod(match[2]) + std::stod(match[3]) == Approx(1).margin(.0015));
    CHECK(std::stoi(match[4]) + std::stoi(match[5]) == 64);
    CHECK(std::abs(std::stod(match[2]) * 64 - std::stoi(match[4])) <= .6);
  }
  CHECK(count == 1);
  CHECK_THAT(read_file(file),
             ContainsSubstring("\"split\":\"auto\"") && ContainsSubstring("{\"event\":\"split\",\"step\":"));
}

// plan/flag_values_test.cpp has all shares that are impossible.
TEST_CASE("impossible shares are refused by each command that has shares") {
  const Words shares = {"--devices", "cpux3", "--split", "1e308:1e308:1e308"};
  for (const Words& command :
       {Words{"train", "--data", "/nonexistent"},  // before it is read
        Words{"sweep", "--data", "synthetic"}, Words{"bench", "scaling", "--data", "synthetic"}}) {
    CHECK_THAT(refusal(program(command + shares), 2), ContainsSubstring("sum to inf"));
  }
}

TEST_CASE("--bn changes the batch-norm statistics that are evaluated and saved, not the training") {
  const SmallData data(8, 4);
  const TempFolder folder;
  const auto saved = [&](const std::string& bn) {
    const auto file = (folder / bn).string();
    metrics_of({"--data", data.folder(), "--recipe", "resnet18-warmup", "--limit-train", "4", "--epochs", "1",
                "--devices", "cpux2", "--bn", bn, "--save", file});
    return read_weights(file).tensors;
  };
  const auto root = saved("root"), average = saved("average");
  REQUIRE(root.size() == average.size());
  for (const auto& [name, tensor] : root) {
    INFO(name);
    CHECK((tensor.bytes == average.at(name).bytes) == (name.find("running_") == std::string::npos));
  }
}

TEST_CASE("--deterministic gives the same bits again") {
  const SmallData data(300, 10);
  const Words words = {"--data",    data.folder(), "--limit-train",  "300",
                       "--devices", "cpux3",       "--deterministic"};
  CHECK(weights_hash(words) == weights_hash(words));
}

TEST_CASE("with --invariant 1, 2, 4 and 8 replicas give the same bits, even for fewer rows than parts") {
  const SmallData data(261, 10);  // batches of 128, 128 and 5
  const auto hash = [&](const std::string& devices, const Words& words) {
    return weights_hash(Words{"--data", data.folder(), "--limit-train", "261", "--devices", devices} + words);
  };
  const auto alone = hash("cpu", {"--invariant"});
  for (const auto* devices : {"cpux2", "cpux4", "cpux8"}) {
    INFO(devices);
    CHECK(hash(devices, {"--invariant"}) == alone);
  }
  CHECK(hash("cpux2", {}) != hash("cpu", {}));  // without it they do not
}
