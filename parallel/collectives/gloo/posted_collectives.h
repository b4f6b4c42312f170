// The collectives of a channel that are under way.
#pragma once

#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <mutex>

namespace lockstep {

// A channel shares it with Gloo's threads, which may end a collective after the channel is gone. Thread-safe.
class PostedCollectives {
 public:
  // The future of a collective that begins. After fail() it throws that error.
  std::future<void> begin(uint64_t number);

  // Its result is there. Does nothing if it has ended.
  void finish(uint64_t number);

  // Ends all collectives with this error, now and later. The first error stays.
  void fail(const std::exception_ptr& error);

  bool failed() const;
  bool idle() const;  // nothing is under way, and nothing has failed

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::promise<void>> promises_;
  std::exception_ptr error_;
};

}  // namespace lockstep
