// Starts the program once per process of a world, by hand: with --rank, --world-size and --master.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/app/train_process.h>

namespace lockstep::testing {

// Listens on a port of the loopback interface, and answers nobody.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_.get(), generic, size) != 0 || ::listen(socket_.get(), 1) != 0 ||
        ::getsockname(socket_.get(), generic, &size) != 0) {
      throw std::runtime_error("no port is free");
    }
    port_ = ntohs(address.sin_port);
  }

  uint16_t port() const { return port_; }

 private:
  const detail::Fd socket_;
  uint16_t port_ = 0;
};

// A port of the loopback interface on which nothing listens.
inline uint16_t free_port() { return Listener().port(); }

// The flags of process `rank` of `size`.
inline Words place_flags(int rank, int size, uint16_t port) {
  return {"--rank",       std::to_string(rank),
          "--world-size", std::to_string(size),
          "--master",     "127.0.0.1:" + std::to_string(port)};
}

// A small run in several processes. common: flags of all. own: flags of each, whose number is the world's
// size.
inline std::vector<Process> small_world(const Words& common, const std::vector<Words>& own) {
  const auto port = free_port();
  const auto size = static_cast<int>(own.size());
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) {
    auto words = common + own[static_cast<size_t>(rank)] + place_flags(rank, size, port);
    for (const auto& usual : {Words{"--limit-test", "64"}, Words{"--timeout", "60"}}) {
      if (std::find(words.begin(), words.end(), usual.front()) == words.end()) words = words + usual;
    }
    processes.push_back(train(words));
  }
  return processes;
}

// Runs all at the same time and waits for all.
inline std::vector<ProcessResult> run_all(std::vector<Process> processes) {
  std::vector<std::future<ProcessResult>> running;
  for (auto& process : processes) {
    running.push_back(std::async(std::launch::async, run_process, std::move(process)));
  }
  std::vector<ProcessResult> results;
  for (auto& result : running) results.push_back(result.get());
  return results;
}

// Sends process `target` the signal once process 0 has printed `line`.
inline std::vector<ProcessResult> run_and_signal(std::vector<Process> processes, size_t target, int signal,
                                                 const std::string& line) {
  std::promise<pid_t> started;
  const auto id = started.get_future().share();
  processes[target].on_start = [&](pid_t pid) { started.set_value(pid); };
  bool sent = false;
  processes[0].on_output = [&sent, id, signal, line](pid_t, const std::string& out) {
    if (sent || out.find(line) == std::string::npos) return;
    ::kill(id.get(), signal);
    sent = true;
  };
  auto results = run_all(std::move(processes));
  CHECK(sent);
  return results;
}

// The first group of the first match; empty if there is none.
inline std::string found_in(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "";
}

// The weights' hash that the program has printed.
inline std::string hash_in(const std::string& out) {
  return found_in(out, "weights sha256: ([0-9a-f]{64})\n");
}

}  // namespace lockstep::testing
