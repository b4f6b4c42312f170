#include <lockstep/parallel/collectives/gloo/store_server.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr std::chrono::seconds kConnectTimeout{30};  // of the server's own client

}  // namespace

struct StoreServer::Served {
  c10::intrusive_ptr<c10d::TCPStore> store;
  int64_t own_keys = 0;
};

StoreServer::StoreServer() : served_(std::make_unique<Served>()) {
  // The kernel chooses the port, so that launches at the same time never choose the same. (Given only a port,
  // c10d would listen on all interfaces.)
  auto listener = listen_on(kLoopback, 0);
  c10d::TCPStoreOptions options;
  options.port = port_of(listener);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = kConnectTimeout;
  options.masterListenFd = listener.release();  // the store closes it
  try {
    served_->store = c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
    served_->own_keys = served_->store->getNumKeys();
  } catch (const c10::Error& error) {
    throw DeviceError(fmt::format("cannot serve the processes' store on {}: {}", kLoopback,
                                  error.what_without_backtrace()));
  }
}

StoreServer::~StoreServer() = default;

std::string StoreServer::host() const { return kLoopback; }

uint16_t StoreServer::port() const { return served_->store->getPort(); }

bool StoreServer::used() const noexcept try {
  return served_->store->getNumKeys() > served_->own_keys;
} catch (const std::exception&) {
  return true;
}

}  // namespace lockstep
