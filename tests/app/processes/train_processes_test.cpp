// `lockstep train` in several processes that are started by hand.
#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/small_data.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

Words on_devices(const std::string& list) { return {"--devices", list}; }

// One replica in each of two processes, without end.
std::vector<Process> endless(const Words& words) {
  return small_world(Words{"--epochs", "1000000", "--log-every", "1"} + words,
                     {on_devices("cpu"), on_devices("cpu")});
}

// Runs all processes, each of which must end with this exit code.
std::vector<ProcessResult> run_all_ending(int exit_code, std::vector<Process> processes) {
  auto results = run_all(std::move(processes));
  for (const auto& result : results) {
    INFO(result.err);
    CHECK(result.exit_code == exit_code);
  }
  return results;
}

void change_last_byte(const std::filesystem::path& path) {
  auto bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(path, bytes);
}

}  // namespace

TEST_CASE("1 x 4, 2 x 2 and 3 + 1 replicas give the same weights, and process 0 alone prints") {
  const Words common = {"--invariant", "--epochs", "1", "--print-weights-hash"};
  const auto alone = run_process(train(common + Words{"--limit-test", "64"} + on_devices("cpux4")));
  REQUIRE(alone.exit_code == 0);
  const std::vector<std::pair<Words, std::string>> worlds = {{{"cpux2", "cpux2"}, "[cpu, cpu] + [cpu, cpu]"},
                                                             {{"cpux3", "cpu"}, "[cpu x 3] + [cpu]"}};
  for (const auto& [lists, text] : worlds) {
    INFO(text);
    const auto results = run_all_ending(0, small_world(common, {on_devices(lists[0]), on_devices(lists[1])}));
    CHECK(hash_in(results[0].out) == hash_in(alone.out));
    CHECK(hash_in(alone.out).size() == 64);
    CHECK_THAT(results[0].out, ContainsSubstring("\n  processes  2, 4 replicas: " + text + "\n") &&
                                   ContainsSubstring("32 per replica") &&
                                   ContainsSubstring("sec/epoch on " + text + "\n"));
    CHECK(results[0].err.empty());
    CHECK(results[1].out.empty());
    CHECK(results[1].err.empty());
  }
}

// The channels between the processes are opened after the data are read.
TEST_CASE("an address on which process 0 cannot listen ends both with code 5, before the data are read") {
  const auto results =
      run_all_ending(5, small_world({"--data", "/nonexistent"}, {{"--listen", "192.0.2.1"}, {}}));
  const std::string error = "cannot listen on 192.0.2.1: Cannot assign requested address\n";
  CHECK_THAT(results[0].err, ContainsSubstring("process 0: " + error));
  CHECK_THAT(results[1].err, ContainsSubstring("process 1: process 0 cannot start: " + error));
}

TEST_CASE("process 0 warns of a master whose name does not resolve") {
  const auto result =
      run_ending(5, train({"--rank", "0", "--world-size", "2", "--master",
                           "no-such-host.invalid:" + std::to_string(free_port()), "--timeout", "1"}));
  CHECK_THAT(result.err, ContainsSubstring("warning: the master's name 'no-such-host.invalid' does not "
                                           "resolve on this host\n"));
}

TEST_CASE("process 0 writes the files that all were asked for, and its --log-every counts") {
  const TempFolder folder;
  const auto metrics = (folder / "run.jsonl").string(), weights = (folder / "w").string();
  run_all_ending(0, small_world({"--epochs", "1", "--metrics", metrics, "--save", weights},
                                {on_devices("cpux2") + Words{"--log-every", "2"},
                                 on_devices("cpu") + Words{"--quiet"}}));
  CHECK(files_in(folder) == 2);
  const auto events = metrics_in(metrics);
  CHECK(events.front().at("processes") == 2);
  CHECK(events.front().at("replicas") == json{2, 1});
  CHECK(events.front().at("devices") == json{"cpu", "cpu", "cpu"});
  CHECK(events.front().at("allreduce") == "gloo");
  CHECK(events.front().at("split") == json{43, 43, 42});
  CHECK(events_named("step", events).size() == 3);  // after steps 2, 4 and 5
  CHECK(events.back().at("status") == "done");
}

// With so small a rate no loss is .01% below the first. Replicas with different rates would not stay alike.
TEST_CASE("a plateau's rate falls in all processes") {
  const TempFolder folder;
  const auto metrics = (folder / "run.jsonl").string();
  run_all_ending(
      0, small_world({"--epochs", "3", "--log-every", "1", "--lr", "1e-6", "--schedule", "plateau", "--gamma",
                      "0.5", "--plateau-patience", "0", "--check-sync", "1", "--metrics", metrics},
                     {on_devices("cpu"), on_devices("cpu")}));
  CHECK(rates_in(metrics_in(metrics)) == std::vector<double>{1e-6, 5e-7});
}

TEST_CASE("processes with different settings are refused in all of them, and nothing is written") {
  const TempFolder folder;
  const auto file = (folder / "run.jsonl").string();
  const auto results = run_all_ending(
      2, small_world({"--metrics", file, "--devices", "cpu"}, {{"--lr", ".2"}, {"--lr", ".1"}}));
  for (const auto& result : results) {
    CHECK(result.out.empty());
    CHECK_THAT(result.err, ContainsSubstring("process 1 has lr 0.1 where process 0 has lr 0.2\n"));
  }
  CHECK(results[0].err.rfind("lockstep: error: rank 0 (process 0): ", 0) == 0);
  CHECK(results[1].err.rfind("lockstep: error: rank 1 (process 1): ", 0) == 0);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("--check-sync compares the replicas of all processes, and changes no weight") {
  const Words common = {"--epochs", "1", "--print-weights-hash"};
  const std::vector<Words> lists = {on_devices("cpux2"), on_devices("cpu")};
  const auto plain = run_all_ending(0, small_world(common, lists));
  const auto checked = run_all_ending(0, small_world(common + Words{"--check-sync", "1"}, lists));
  for (const auto& results : {plain, checked}) {
    for (const auto& result : results) CHECK(result.err.empty());
  }
  CHECK(hash_in(plain[0].out).size() == 64);
  CHECK(hash_in(checked[0].out) == hash_in(plain[0].out));
  CHECK_THAT(plain[0].out, !ContainsSubstring("\n  checks "));
  CHECK_THAT(checked[0].out, ContainsSubstring("\n  checks     replicas are compared after every step\n"));
}

TEST_CASE("processes that compare their replicas after other steps, or compress differently, are refused") {
  for (const auto& [flags, words] :
       {std::pair{Words{"--check-sync", "7"},
                  "process 1 has check sync 7 where process 0 has check sync 0\n"},
        {Words{"--compress", "bf16"}, "process 1 has compress bf16 where process 0 has compress none\n"}}) {
    for (const auto& result : run_all_ending(2, small_world({"--devices", "cpu"}, {{}, flags}))) {
      CHECK_THAT(result.err, ContainsSubstring(words));
    }
  }
}

TEST_CASE("--check-sync works in one process, and is part of the plan") {
  const auto two =
      run_process(train({"--devices", "cpux2", "--epochs", "1", "--limit-test", "64", "--check-sync", "2"}));
  INFO(two.err);
  CHECK(two.exit_code == 0);
  CHECK_THAT(two.out, ContainsSubstring("\n  checks     replicas are compared every 2 steps\n"));
  const auto alone = run_process(train({"--devices", "cpu", "--check-sync", "1", "--dry-run"}));
  CHECK(alone.exit_code == 0);
  CHECK_THAT(alone.out, ContainsSubstring("\n  checks     one replica: nothing to compare\n"));
  const auto plan = [](const Words& words) {
    return json::parse(run_process(train(words + Words{"--devices", "cpux2", "--dry-run", "--json"})).out);
  };
  CHECK(plan({"--check-sync", "100"}).at("check_sync") == 100);
  CHECK(plan({}).at("check_sync") == 0);
  CHECK_THAT(refusal(train({"--check-sync", "-1"}), 2), ContainsSubstring("--check-sync"));
}

TEST_CASE("--compress changes what travels, and nothing of the rest") {
  const auto events_of = [](const Words& words) {
    const TempFolder folder;
    const auto file = (folder / "run.jsonl").string();
    const Words common = {"--epochs",  "1", "--print-weights-hash", "--log-every", "1", "--check-sync", "1",
                          "--metrics", file};
    run_all_ending(0, small_world(common + words, {on_devices("cpux2"), on_devices("cpu")}));
    return metrics_in(file);
  };
  const auto plain = events_of({}), same = events_of({"--compress", "none"});
  CHECK(plain.front().at("compress") == "none");
  CHECK(same.back().at("weights_sha256") == plain.back().at("weights_sha256"));
  for (const std::string compress : {"bf16", "fp16"}) {
    INFO(compress);
    const auto events = events_of({"--compress", compress});
    CHECK(events.front().at("compress") == compress);
    CHECK(2 * events.front().at("wire_bytes").get<int64_t>() == plain.front().at("wire_bytes"));
    CHECK(events.back().at("weights_sha256") != plain.back().at("weights_sha256"));
    const auto steps = events_named("step", events), others = events_named("step", plain);
    REQUIRE(steps.size() == others.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      CHECK(steps[i].at("loss").get<double>() == Approx(others[i].at("loss").get<double>()).epsilon(.02));
    }
  }
}

TEST_CASE("one process that would compress is refused") {
  CHECK_THAT(refusal(train({"--compress", "bf16", "--devices", "cpux2"}), 2),
             ContainsSubstring("--compress bf16 rounds what travels between processes, but this process is "
                               "alone\nhint: "));
  CHECK_THAT(refusal(train({"--compress", "bf16", "--invariant"}), 2), ContainsSubstring("--compress"));
  CHECK_THAT(refusal(train({"--compress", "int8"}), 2), ContainsSubstring("must be none, bf16 or fp16"));
}

TEST_CASE("bad input of one process ends all, with its exit code and its reason") {
  const TempFolder folder;
  const auto missing = (folder / "missing").string();
  const auto results = run_all_ending(3, small_world({"--devices", "cpux2"}, {{}, {"--data", missing}}));
  CHECK_THAT(results[0].err, ContainsSubstring("ranks 0-1 (process 0): process 1 cannot start: ") &&
                                 ContainsSubstring(missing) && ContainsSubstring("\nhint: "));
  CHECK_THAT(results[1].err,
             ContainsSubstring("ranks 2-3 (process 1): ") && !ContainsSubstring("cannot start"));
}

TEST_CASE("processes whose data differ in one image or label are refused, with both hashes") {
  const SmallData data(640, 64);  // as many as the run takes
  const struct {
    const char* file;
    const char* hash;
  } cases[] = {{"train-images-idx3-ubyte", "train data hash"},
               {"train-labels-idx1-ubyte", "train data hash"},
               {"t10k-images-idx3-ubyte", "test data hash"},
               {"t10k-labels-idx1-ubyte", "test data hash"}};
  for (const auto& each : cases) {
    INFO(each.file);
    const TempFolder folder;
    std::filesystem::copy(data.folder(), folder.path(), std::filesystem::copy_options::recursive);
    change_last_byte(folder / each.file);
    const auto results =
        run_all_ending(2, small_world({"--epochs", "1", "--devices", "cpu"},
                                      {{"--data", data.folder()}, {"--data", folder.path().string()}}));
    for (const auto& result : results) {
      const auto hashes = std::regex(fmt::format(
          "process 1 has {0} ([0-9a-f]{{32}}) where process 0 has {0} (?!\\1)[0-9a-f]{{32}}\n", each.hash));
      CHECK(std::regex_search(result.err, hashes));
    }
  }
}

TEST_CASE("a place that does not exist, and a master that does not answer, are refused") {
  const auto port = free_port();
  CHECK_THAT(refusal(train(place_flags(2, 2, port)), 2), ContainsSubstring("2"));
  CHECK_THAT(refusal(train({"--rank", "0"}), 2), ContainsSubstring("\nhint: "));
  const auto unreachable = refusal(train(place_flags(1, 2, port) + Words{"--timeout", "1"}), 5);
  CHECK_THAT(unreachable, ContainsSubstring("error: process 1: ") && ContainsSubstring("127.0.0.1") &&
                              ContainsSubstring(std::to_string(port)));
  const auto unknown = refusal(
      train({"--rank", "1", "--world-size", "2", "--master", "no-such-host.invalid:29500", "--timeout", "1"}),
      5);
  CHECK_THAT(unknown, ContainsSubstring("error: process 1: ") && ContainsSubstring("no-such-host.invalid"));
}

TEST_CASE("a port on which another program listens is refused") {
  const Listener other;
  const auto refused = refusal(train(place_flags(0, 2, other.port())), 5);
  CHECK_THAT(refused, ContainsSubstring("error: process 0: ") && ContainsSubstring("ddress already in use") &&
                          ContainsSubstring(std::to_string(other.port())));
}

// The later one of the two processes 1 is refused. When it comes so late that the run is over, nobody answers
// it.
TEST_CASE("a place that is taken is refused") {
  auto processes = small_world({"--epochs", "1", "--devices", "cpu", "--timeout", "5"}, {{}, {}});
  processes.push_back(processes[1]);
  const auto results = run_all(std::move(processes));
  const auto refused = [](const ProcessResult& result) {
    return result.exit_code == 5 && result.err.find("error: process 1: ") != std::string::npos;
  };
  CHECK(std::count_if(results.begin() + 1, results.end(), refused) >= 1);
}

TEST_CASE("a signal to one process stops all after the same step, and process 0 keeps the weights") {
  const TempFolder folder;
  const auto weights = (folder / "w").string();
  const auto results = run_and_signal(endless({"--save", weights}), 1, SIGTERM, "step 2/5");
  std::vector<std::string> where;
  for (const auto& result : results) {
    INFO(result.err);
    CHECK(result.exit_code == 143);
    where.push_back(found_in(result.err, "stopped by SIGTERM (.*)\n"));
  }
  CHECK_FALSE(where[0].empty());
  CHECK(where[0] == where[1]);
  CHECK_THAT(results[1].err, ContainsSubstring("SIGTERM noted") &&
                                 ContainsSubstring("error: rank 1 (process 1): stopped by SIGTERM"));
  CHECK_THAT(results[0].err, !ContainsSubstring("noted"));
  CHECK_THAT(results[0].out, ContainsSubstring("weights saved to " + weights));
  CHECK(results[1].out.empty());
  CHECK(files_in(folder) == 1);
}

TEST_CASE("when a process is lost, the other one ends with code 10 and says who it is") {
  const auto results = run_and_signal(endless({}), 1, SIGKILL, "step 2/5");
  CHECK(results[1].signal == SIGKILL);
  INFO(results[0].err);
  CHECK(results[0].exit_code == 10);
  CHECK(results[0].err.rfind("lockstep: error: rank 0 (process 0): ", 0) == 0);
}

TEST_CASE("metrics that cannot be written end all processes") {
  const auto results = run_all_ending(
      7,
      small_world({"--epochs", "1", "--devices", "cpu", "--metrics", "/dev/full", "--overwrite"}, {{}, {}}));
  CHECK_THAT(results[0].err, ContainsSubstring("rank 0 (process 0): ") && ContainsSubstring("/dev/full"));
  CHECK_THAT(results[1].err, ContainsSubstring("rank 1 (process 1): ") &&
                                 ContainsSubstring("process 0 cannot write its output"));
}

TEST_CASE("commands of one process refuse to be one of several") {
  const std::map<std::string, std::string> torchrun = {{"RANK", "1"},
                                                       {"LOCAL_RANK", "1"},
                                                       {"WORLD_SIZE", "2"},
                                                       {"LOCAL_WORLD_SIZE", "2"},
                                                       {"MASTER_ADDR", "127.0.0.1"},
                                                       {"MASTER_PORT", "29500"},
                                                       {"TORCHELASTIC_RUN_ID", "none"},
                                                       {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const std::map<std::string, Words> commands = {
      {"bench step", {"bench", "step"}},
      {"sweep", {"sweep"}},
      {"demo scratch", {"demo", "scratch"}},
      {"plot", {"plot", "metrics.jsonl"}},
      {"checkpoint export", {"checkpoint", "export", "run", "file"}}};
  for (const auto& [command, words] : commands) {
    CHECK_THAT(
        refusal(program(words, torchrun), 2),
        ContainsSubstring(command + " runs in one process, but torchrun started 2\nhint: start it "
                                    "without a launcher; only train, bench allreduce and bench scaling run"));
  }
}
