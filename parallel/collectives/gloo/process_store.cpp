#include <lockstep/parallel/collectives/gloo/process_store.h>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <thread>
#include <utility>

#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/c10d_store.h>
#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerLimit{10'000};
constexpr std::chrono::seconds kNameServers{30};
constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLastPause{20'000};

bool serves(const World& world) { return world.process == 0 && !world.store_runs; }

// Where the processes meet. A launcher that starts all of them on one host may give its name.
std::string store_host(const World& world) {
  const bool on_one_host = !world.store_runs && world.processes_on_host == world.processes;
  return on_one_host && !is_loopback(world.master_host) ? kLoopback : world.master_host;
}

std::string store_place(const World& world) { return host_and_port(store_host(world), world.master_port); }

// A launcher may call this host "localhost" to its own processes, and by its address to those of others. (An
// address of loopback is meant as it is.)
bool has_another_name_elsewhere(const World& world) {
  return !world.launcher.empty() && world.processes_on_host < world.processes &&
         world.master_host == "localhost";
}

// Empty: all interfaces.
std::string listening_address(const World& world, const std::string& listen) {
  const auto host = store_host(world);
  if (has_another_name_elsewhere(world)) return {};  // the processes of this host come through loopback
  if (is_loopback(host)) return host;
  return listen.empty() && is_numeric(host) ? host : listen;
}

// Where somebody listens c10d connects at once, but then asks the name service what the other end is called.
// If no name server answers that takes half a minute. c10d takes whole seconds.
milliseconds connect_timeout(milliseconds timeout) {
  return std::max<std::chrono::seconds>(std::chrono::ceil<std::chrono::seconds>(timeout), kNameServers);
}

c10d::TCPStoreOptions store_options(const World& world, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = world.master_port;
  options.waitWorkers = false;  // the roll call does that, and names the missing
  options.timeout = connect_timeout(timeout);
  return options;
}

std::shared_ptr<C10dStore> open_client(const World& world, const std::string& host,
                                       const c10d::TCPStoreOptions& options) {
  const auto prefix = "lockstep/" + world.run;
  const auto limit = options.timeout + kAnswerLimit;
  return call_within(limit, [host, options, prefix] {
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(host, options);
    store = c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
    return std::make_shared<C10dStore>(C10dStore{std::move(store)});
  });
}

std::shared_ptr<C10dStore> serve(const World& world, const std::string& listen, milliseconds timeout) {
  const auto address = listening_address(world, listen);
  auto socket = listen_on(address, world.master_port);
  auto options = store_options(world, timeout);
  options.isServer = true;
  options.masterListenFd = socket.release();  // c10d closes it
  return open_client(world, address.empty() ? kLoopback : address, options);
}

std::shared_ptr<C10dStore> reach(const World& world, milliseconds timeout) {
  wait_for_listener(store_host(world), world.master_port, timeout);
  return open_client(world, store_host(world), store_options(world, timeout));
}

std::shared_ptr<C10dStore> open_store(const World& world, const std::string& listen, milliseconds timeout) {
  const auto* what = serves(world) ? "serve" : "reach";
  const auto failed = [&](const std::string& why) {
    return DeviceError(fmt::format("process {} of {} cannot {} the store at {}: {}", world.process,
                                   world.processes, what, store_place(world), why),
                       "check that no other program listens there");
  };
  try {
    return serves(world) ? serve(world, listen, timeout) : reach(world, timeout);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // c10d's, or a TimedOutCall
    throw failed(clean_words(error.what()));
  }
}

}  // namespace

ProcessStore::ProcessStore(const World& world, const std::string& listen, milliseconds timeout)
    : is_served_here_(serves(world)),
      connect_limit_(connect_timeout(timeout)),
      host_(store_host(world)),
      place_(store_place(world)),
      hint_(world.store_runs ? "the launcher serves the store: see its message, and those of other processes"
                             : "process 0 serves the store: see its message"),
      client_(open_store(world, listen, timeout)) {}

// call: of a c10d::Store&
template <typename Call>
auto ProcessStore::ask(Call call) const {
  return ask_within(kAnswerLimit, std::move(call));
}

template <typename Call>
auto ProcessStore::ask_within(milliseconds limit, Call call) const {
  try {
    return call_within(limit, [client = client_, call = std::move(call)] { return call(*client->store); });
  } catch (const TimedOutCall&) {
    throw PeerError(fmt::format("the store at {} does not answer within {}", place_, in_seconds(limit)),
                    hint_);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(fmt::format("lost the store at {}: {}", place_, clean_words(error.what())), hint_);
  }
}

void ProcessStore::set(const std::string& key, const std::string& value) const {
  ask([key, value](c10d::Store& store) { store.set(key, value); });
}

std::string ProcessStore::set_if_new(const std::string& key, const std::string& value) const {
  return ask([key, value](c10d::Store& store) { return store.compareSet(key, "", value); });
}

int64_t ProcessStore::add(const std::string& key, int64_t number) const {
  return ask([key, number](c10d::Store& store) { return store.add(key, number); });
}

void ProcessStore::remove(const std::string& key) const {
  ask([key](c10d::Store& store) { store.deleteKey(key); });
}

bool ProcessStore::has(const Keys& keys) const {
  return ask([keys](c10d::Store& store) { return store.check(keys); });
}

std::vector<int> ProcessStore::missing(const Keys& keys) const {
  std::vector<int> missing;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!has({keys[i]})) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

std::vector<std::string> ProcessStore::get(const Keys& keys) const {
  return ask([keys](c10d::Store& store) {
    std::vector<std::string> texts;
    for (const auto& bytes : store.multiGet(keys)) texts.emplace_back(bytes.begin(), bytes.end());
    return texts;
  });
}

// c10d's own wait() prints warnings when its timeout passes.
bool ProcessStore::wait(const Keys& keys, milliseconds limit) const {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (auto pause = kFirstPause; !has(keys); pause = std::min(2 * pause, kLastPause)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

std::shared_ptr<C10dStore> ProcessStore::another_client() const {
  return ask_within(connect_limit_,
                    [](c10d::Store& store) { return std::make_shared<C10dStore>(C10dStore{store.clone()}); });
}

}  // namespace lockstep
