#include <lockstep/parallel/collectives/gloo/messages.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <regex>

namespace lockstep {

std::string clean_words(const std::string& what) {
  auto words = what.substr(0, what.find('\n'));
  words = words.substr(0, words.find("Exception raised from"));
  // "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:40412"
  words = std::regex_replace(words, std::regex(R"(\[[^\]]*\.(cc|cpp|h|hpp):\d+\]\s*)"), "");
  words = words.substr(0, words.find(". "));
  words.erase(words.find_last_not_of(" .:") + 1);  // npos + 1 is 0
  return words.empty() ? "unknown error" : words;
}

std::string name_processes(const std::vector<int>& processes, int world) {
  if (processes.size() == 1) return fmt::format("process {} of {}", processes.front(), world);
  const auto last = processes.end() - 1;
  return fmt::format("processes {} and {} of {}", fmt::join(processes.begin(), last, ", "), *last, world);
}

std::string in_seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

PeerError peer_failed_error() {
  return PeerError("another process cannot go on", "see the messages of the other processes");
}

}  // namespace lockstep
