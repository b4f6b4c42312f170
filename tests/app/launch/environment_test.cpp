// `lockstep launch` gives each process variables, arguments, cores, standard streams and a store.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/tests/app/launch/script.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// The variables of a file that `env` has written. No name may be there twice.
std::map<std::string, std::string> variables_in(const std::filesystem::path& file) {
  std::map<std::string, std::string> variables;
  for (const auto& line : lines(read_file(file))) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) continue;
    CHECK(variables.emplace(line.substr(0, equals), line.substr(equals + 1)).second);
  }
  return variables;
}

// The cores of a list of the kernel: "0-2,5".
std::vector<int> cores_in(const std::string& list) {
  std::vector<int> cores;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto dash = part.find('-');
    const int first = std::stoi(part);
    const int last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

// The cores of each of several processes.
std::vector<std::vector<int>> cores_of_launched(int processes) {
  const Script script("grep Cpus_allowed_list /proc/self/status > \"$1/cores.$RANK\"\n");
  CHECK(run_process(script.launch(processes)).exit_code == 0);
  std::vector<std::vector<int>> cores;
  for (int process = 0; process < processes; ++process) {
    const auto line = read_file(script.file("cores." + std::to_string(process)));
    cores.push_back(cores_in(line.substr(line.find_first_of("0123456789"))));
  }
  return cores;
}

}  // namespace

TEST_CASE("each process gets torchrun's variables, in place of any of the launcher") {
  const Script script("env > \"$1/env.$RANK\"\n");
  auto process = script.launch(3, {"--max-restarts", "2"});
  for (const auto* name : {"LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                           "LOCKSTEP_RUN_TOKEN"}) {
    process.environment[name] = "old";
  }
  process.environment["OTHER"] = "kept";
  const auto result = run_ending(0, process);
  CHECK(result.out.empty());
  CHECK(result.err == alone_warning(3) + "\n");

  auto first = variables_in(script.file("env.0"));
  for (int rank = 0; rank < 3; ++rank) {
    auto variables = variables_in(script.file("env." + std::to_string(rank)));
    const std::map<std::string, std::string> expected = {{"RANK", std::to_string(rank)},
                                                         {"LOCAL_RANK", std::to_string(rank)},
                                                         {"WORLD_SIZE", "3"},
                                                         {"LOCAL_WORLD_SIZE", "3"},
                                                         {"MASTER_ADDR", "127.0.0.1"},
                                                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                         {"TORCHELASTIC_MAX_RESTARTS", "2"},
                                                         {"LOCKSTEP_RUN_LAUNCHER", "lockstep"},
                                                         {"OTHER", "kept"}};
    for (const auto& [name, value] : expected) CHECK(name + "=" + variables[name] == name + "=" + value);
    CHECK(std::stoi(variables["MASTER_PORT"]) > 0);
    CHECK(std::regex_match(variables["LOCKSTEP_RUN_TOKEN"], std::regex("[0-9a-f]{32}")));
    CHECK(variables["TORCHELASTIC_RUN_ID"] != variables["LOCKSTEP_RUN_TOKEN"]);
    for (const auto* name : {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "LOCKSTEP_RUN_TOKEN"}) {
      CHECK(variables[name] == first[name]);
    }
  }
}

TEST_CASE("each launch has a token and a name of its own") {
  const Script script("echo \"$LOCKSTEP_RUN_TOKEN $TORCHELASTIC_RUN_ID\"\n");
  const auto once = run_process(script.launch(1)).out, again = run_process(script.launch(1)).out;
  CHECK(once.size() == 32 + 1 + 32 + 1);
  CHECK(once != again);
}

TEST_CASE("a program gets its arguments exactly as they are") {
  const Script script("shift\nfor word in \"$@\"; do printf '<%s>' \"$word\"; done\n");
  const Words odd = {"-n", "--", "[a,b]", "", "--processes=3", "a b", "'", "--color", "--help"};
  const auto result = run_ending(0, script.launch(1, {"--color", "never"}, odd));
  CHECK(result.out == "<-n><--><[a,b]><><--processes=3><a b><'><--color><--help>");
}

TEST_CASE("process 0 prints every byte where the launcher would, and the others do not") {
  const Script script(
      "if [ $RANK = 0 ]; then printf 'a\\000b\\r\\n\\033[1m\\377 end'; printf 'to stderr' >&2\n"
      "else echo 'of another process'; echo 'of another process' >&2; fi\n");
  const auto result = run_ending(0, script.launch(3));
  CHECK(result.out == std::string("a\0b\r\n\x1b[1m\xff end", 14));
  CHECK(result.err == "to stderr" + alone_warning(3) + "\n");
  CHECK(std::filesystem::is_empty(script.temporary()));
}

TEST_CASE("process 0 shares the launcher's terminal") {
  const Script script("[ -t 1 ] && [ -t 2 ] && echo \"terminal for $RANK\"\nexit 0\n");
  auto process = script.launch(2);
  process.on_terminal = true;
  const auto result = run_ending(0, process);
  CHECK_THAT(result.out,
             Catch::Matchers::StartsWith("terminal for 0\r\n") && !ContainsSubstring("terminal for 1"));
}

TEST_CASE("the processes' standard input is empty") {
  const Script script("cat > \"$1/in.$RANK\"\n");
  const auto command =
      "echo words | " LOCKSTEP_PROGRAM " launch -n 2 -- " + script.path() + " " + script.files().string();
  CHECK(run_process({.command = {"/bin/sh", "-c", command}}).exit_code == 0);
  CHECK(script.has_all("in", 2));
  CHECK(read_file(script.file("in.0")).empty());
  CHECK(read_file(script.file("in.1")).empty());
}

TEST_CASE("the processes divide the cores if there is one for each") {
  const auto allowed = lockstep::allowed_cores();
  if (allowed.size() < 2) SKIP_CASE("needs two cores");
  const auto both = cores_of_launched(2);
  CHECK(both[0].size() == allowed.size() / 2);
  CHECK(both[1].size() == allowed.size() / 2);
  std::set<int> all(both[0].begin(), both[0].end());
  all.insert(both[1].begin(), both[1].end());
  CHECK(all.size() == 2 * (allowed.size() / 2));
  for (const int core : all) CHECK(std::find(allowed.begin(), allowed.end(), core) != allowed.end());
  CHECK(cores_of_launched(1)[0] == allowed);
}

TEST_CASE("with fewer cores than processes each has all cores") {
  const auto allowed = lockstep::allowed_cores();
  if (allowed.size() > 8) SKIP_CASE("would start too many processes");
  for (const auto& cores : cores_of_launched(static_cast<int>(allowed.size()) + 1)) CHECK(cores == allowed);
}

TEST_CASE("auto starts at least one process") {
  const Script script("echo $WORLD_SIZE\n");
  auto process = script.launch(1);
  process.command[3] = "auto";
  const auto result = run_ending(0, process);
  CHECK(std::stoi(result.out) >= 1);
}

// Lines of /proc/net/tcp: "0: 0100007F:1F90 00000000:0000 0A ..."; 0A: listens.
TEST_CASE("the store listens on the loopback interface only") {
  const Script script(
      "port=$(printf ':%04X' $MASTER_PORT)\n"
      "cat /proc/net/tcp /proc/net/tcp6 | awk -v port=$port '$4 == \"0A\" && index($2, port) { print $2 "
      "}'\n");
  const auto result = run_ending(0, script.launch(1));
  const auto listening = lines(result.out);
  REQUIRE(listening.size() == 1);
  CHECK_THAT(listening[0], Catch::Matchers::StartsWith("0100007F:"));
}

TEST_CASE("a subcommand runs in each process, and process 0 prints") {
  const auto result = run_ending(0, program({"launch", "-n", "2", "--", "version"}));
  CHECK(result.out == run_process(program({"version"})).out);
  CHECK(result.err.empty());
}

// All are there at the same time. Four then add up, each in its own world.
TEST_CASE("twenty launches at once do not collide") {
  const Script script(
      "touch \"$1/$2.$RANK\"\n"
      "until [ $(ls \"$1\" | wc -l) -ge 40 ]; do sleep .05; done\n"
      "case $2 in run?) ;; *) exit ;; esac\n" LOCKSTEP_PROGRAM
      " bench allreduce --devices cpu --threads 1 --min-bytes 1K --max-bytes 4K --repeat 3 --iterations 3 "
      "--timeout 120 > \"$1/sums.$2.$RANK\"\n");
  const std::string names[] = {"run0", "run1", "run2", "run3"};
  std::string command = "pids=\n";
  for (int i = 0; i < 20; ++i) {
    command += LOCKSTEP_PROGRAM " launch -n 2 -- " + script.path() + " " + script.files().string() + " " +
               (i < 4 ? names[i] : "other" + std::to_string(i)) + " & pids=\"$pids $!\"\n";
  }
  command += "for pid in $pids; do wait $pid || exit 1; done\n";
  const auto result = run_ending(0, {.command = {"/bin/sh", "-c", command}});
  for (int i = 4; i < 20; ++i) CHECK(script.has_all("other" + std::to_string(i), 2));
  for (const auto& name : names) {
    CHECK(script.has_all(name, 2));
    CHECK_THAT(read_file(script.file("sums." + name + ".0")),
               ContainsSubstring("2 (lockstep launch), 2 replicas: [cpu] + [cpu]") &&
                   ContainsSubstring("check sums: OK (0 elements wrong)"));
  }
}
