#include <lockstep/parallel/collectives/gloo/exchange_texts.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// A process's text, and the sign that it has read those of the others.
std::string text_key(const std::string& name, int process) { return fmt::format("{}/{}", name, process); }
std::string read_key(const std::string& name, int process) {
  return fmt::format("{}/{}/read", name, process);
}

constexpr std::chrono::milliseconds kLookForEnd{250};

using KeyOfProcess = std::string (*)(const std::string& name, int process);

enum class Arrival { kAll, kTooLate, kGivenUp };

// Waits for the keys. A process that gives up may have found all of them before.
Arrival await_keys(const ProcessStore& store, const std::vector<std::string>& keys,
                   std::chrono::milliseconds limit, const std::function<bool()>& given_up) {
  using std::chrono::milliseconds;
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const bool last = given_up();
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (store.wait(keys, std::clamp(left, milliseconds(0), kLookForEnd))) return Arrival::kAll;
    if (last) return Arrival::kGivenUp;
    if (left <= kLookForEnd) return Arrival::kTooLate;
  }
}

std::vector<std::string> keys_of_all(const World& world, const std::string& name, KeyOfProcess key) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(world.processes));
  for (int process = 0; process < world.processes; ++process) keys.push_back(key(name, process));
  return keys;
}

// Throws PeerError that names the processes without a key.
void require_all(const ProcessStore& store, const World& world, const std::vector<std::string>& keys,
                 std::chrono::milliseconds limit) {
  const auto missing = store.missing(keys);
  if (missing.empty()) return;
  throw PeerError(
      fmt::format("{} did not answer within {}", name_processes(missing, world.processes), in_seconds(limit)),
      "it ended, hangs or is slower than the timeout: see its own message");
}

}  // namespace

std::vector<std::string> exchange_texts(const ProcessStore& store, const World& world,
                                        const std::string& name, const std::string& own,
                                        std::chrono::milliseconds limit,
                                        const std::function<bool()>& given_up) {
  store.set(text_key(name, world.process), own);
  const auto keys = keys_of_all(world, name, text_key);
  const auto arrival = await_keys(store, keys, limit, given_up);
  if (arrival == Arrival::kGivenUp) throw peer_failed_error();
  if (arrival == Arrival::kTooLate) require_all(store, world, keys, limit);
  auto texts = store.get(keys);
  store.set(read_key(name, world.process), "");
  if (!store.is_served_here()) return texts;
  const auto read_keys = keys_of_all(world, name, read_key);
  if (await_keys(store, read_keys, limit, given_up) == Arrival::kTooLate) {
    require_all(store, world, read_keys, limit);
  }
  return texts;
}

void forget_texts(const ProcessStore& store, const World& world, const std::string& name) {
  store.remove(text_key(name, world.process));
  store.remove(read_key(name, world.process));
}

}  // namespace lockstep
