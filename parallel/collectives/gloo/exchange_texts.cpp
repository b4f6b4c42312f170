#include <lockstep/parallel/collectives/gloo/exchange_texts.h>

#include <fmt/format.h>

#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// A process's text, and the sign that it has read those of the others.
std::string text_key(const std::string& name, int process) { return fmt::format("{}/{}", name, process); }
std::string read_key(const std::string& name, int process) {
  return fmt::format("{}/{}/read", name, process);
}

using KeyOfProcess = std::string (*)(const std::string& name, int process);

// Waits for the key of every process.
std::vector<std::string> await_all(const ProcessStore& store, const World& world, const std::string& name,
                                   KeyOfProcess key, std::chrono::milliseconds limit) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(world.processes));
  for (int process = 0; process < world.processes; ++process) keys.push_back(key(name, process));
  if (store.wait(keys, limit)) return keys;
  std::vector<int> missing;
  for (int process = 0; process < world.processes; ++process) {
    if (!store.has({key(name, process)})) missing.push_back(process);
  }
  if (missing.empty()) return keys;
  throw PeerError(
      fmt::format("{} did not answer within {}", name_processes(missing, world.processes), in_seconds(limit)),
      "it ended, hangs or is slower than the time-out: see its own message");
}

}  // namespace

std::vector<std::string> exchange_texts(const ProcessStore& store, const World& world,
                                        const std::string& name, const std::string& own,
                                        std::chrono::milliseconds limit) {
  store.set(text_key(name, world.process), own);
  auto texts = store.get(await_all(store, world, name, text_key, limit));
  store.set(read_key(name, world.process), "");
  if (store.is_served_here()) await_all(store, world, name, read_key, limit);
  return texts;
}

void forget_texts(const ProcessStore& store, const World& world, const std::string& name) {
  store.remove(text_key(name, world.process));
  store.remove(read_key(name, world.process));
}

}  // namespace lockstep
