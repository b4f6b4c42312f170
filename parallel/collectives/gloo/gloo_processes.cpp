#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/c10d_error.h>
#include <lockstep/parallel/collectives/gloo/gloo_channel.h>
#include <lockstep/parallel/processes.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

double seconds_of(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

bool on_one_host(const World& world) {
  return world.local_processes == world.processes || is_loopback(world.host, world.port);
}

// Process 0 serves the store, unless the launcher does, on the address at which the others look for it.
Store open_store(const World& world, const JoinOptions& options) {
  c10d::TCPStoreOptions tcp;
  tcp.port = world.port;
  tcp.timeout = options.timeout;
  tcp.waitWorkers = false;
  tcp.isServer = world.process == 0 && !world.store_runs;
  if (tcp.isServer) {
    const auto address = on_one_host(world)       ? "127.0.0.1"
                         : options.listen.empty() ? world.host
                                                  : options.listen;
    tcp.masterListenFd = listen_on(address, world.port);  // the store closes it
  }
  const auto host = tcp.isServer && on_one_host(world) ? "127.0.0.1" : world.host;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, tcp);
    return c10::make_intrusive<c10d::PrefixStore>("lockstep/" + world.run, store);
  } catch (const std::exception& error) {
    throw DeviceError(fmt::format("process {} cannot reach the master {}:{} within {:g} s: {}", world.process,
                                  world.host, world.port, seconds_of(options.timeout), c10d_words(error)),
                      "check that process 0 runs, and the master's address");
  }
}

class GlooProcesses : public Processes {
 public:
  GlooProcesses(const World& world, const JoinOptions& options)
      : world_(world), timeout_(options.timeout), store_(open_store(world, options)) {
    claim_place();
    count_local_processes();
    address_ = world_.local_processes == world_.processes || is_loopback(world_.host, world_.port)
                   ? "127.0.0.1"
               : options.listen.empty() ? address_towards(world_.host, world_.port)
                                        : options.listen;
  }

  const World& world() const override { return world_; }

  std::vector<std::string> gather(const std::string& own) override {
    const auto round = fmt::format("gather/{}", gathers_++);
    const auto key = [&](int process) { return fmt::format("{}/{}", round, process); };
    std::vector<std::string> texts;
    try {
      store_->set(key(world_.process), bytes_of(own));
      for (int process = 0; process < world_.processes; ++process) {
        store_->wait({key(process)}, timeout_);
        const auto bytes = store_->get(key(process));
        texts.emplace_back(bytes.begin(), bytes.end());
      }
      wait_for_readers(round);
    } catch (const std::exception& error) {
      throw missing(key, c10d_words(error));
    }
    return texts;
  }

  std::vector<std::unique_ptr<Channel>> open_channels(int count) override {
    std::vector<std::unique_ptr<Channel>> channels;
    for (int i = 0; i < count; ++i) {
      const auto prefix = fmt::format("channel/{}", channels_++);
      channels.push_back(make_gloo_channel({.store = c10::make_intrusive<c10d::PrefixStore>(prefix, store_),
                                            .process = world_.process,
                                            .processes = world_.processes,
                                            .address = address_,
                                            .timeout = timeout_}));
    }
    return channels;
  }

 private:
  static std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

  void claim_place() {
    const auto key = fmt::format("place/{}", world_.process);
    if (store_->add(key, 1) == 1) return;
    throw DeviceError(
        fmt::format("process {} of {} has been started twice", world_.process, world_.processes),
        "give every process its own rank");
  }

  // Waits for all processes, at most the time-out, and finds out which of them are on this host.
  void count_local_processes() {
    std::vector<std::string> hosts;
    try {
      hosts = gather(host_identity());
    } catch (const PeerError& error) {
      throw DeviceError(error.what(), "start all processes with the same master and world size");
    }
    world_.local_process = world_.local_processes = 0;
    for (int process = 0; process < world_.processes; ++process) {
      if (hosts[static_cast<size_t>(process)] != hosts[static_cast<size_t>(world_.process)]) continue;
      if (process < world_.process) ++world_.local_process;
      ++world_.local_processes;
    }
  }

  // The process that serves the store is the last to go on: it may leave, and the others must have read.
  void wait_for_readers(const std::string& round) {
    if (store_->add(round + "/readers", 1) == world_.processes) store_->set(round + "/read", bytes_of("all"));
    if (world_.process == 0 && !world_.store_runs) store_->wait({round + "/read"}, timeout_);
  }

  // Names the processes whose keys are not there.
  template <class Key>
  PeerError missing(const Key& key, const std::string& words) {
    std::string names;
    try {
      for (int process = 0; process < world_.processes; ++process) {
        if (!store_->check({key(process)})) names += fmt::format("{}{}", names.empty() ? "" : ", ", process);
      }
    } catch (const std::exception&) {
      return PeerError(fmt::format("process {} has lost the store at {}:{}: {}", world_.process, world_.host,
                                   world_.port, words),
                       "look for the first error of the other processes");
    }
    return PeerError(fmt::format("process {} of {} did not answer within {:g} s", names.empty() ? "0" : names,
                                 world_.processes, seconds_of(timeout_)),
                     "look for the first error of the other processes");
  }

  World world_;
  const std::chrono::milliseconds timeout_;
  const Store store_;
  std::string address_;  // on which the channels listen
  int64_t gathers_ = 0;
  int64_t channels_ = 0;
};

}  // namespace

std::shared_ptr<Processes> join_processes(const World& world, const JoinOptions& options) {
  if (world.processes == 1) return nullptr;
  return std::make_shared<GlooProcesses>(world, options);
}

}  // namespace lockstep
