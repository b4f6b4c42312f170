// A Channel through c10d's Gloo.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/parallel/collectives/channel.h>

namespace lockstep {

struct GlooOptions {
  c10::intrusive_ptr<c10d::Store> store;  // of this channel alone
  int process = 0;
  int processes = 1;
  std::string address;                // that this process listens on
  std::chrono::milliseconds timeout;  // for connecting, and of each collective
};

// Waits until all processes have connected. Throws PeerError if they do not in time.
std::unique_ptr<Channel> make_gloo_channel(const GlooOptions& options);

}  // namespace lockstep
