// The collectives of a channel that are under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/parallel/collectives/call.h>

namespace lockstep {

// A collective as it was posted. Nothing is formatted before something has failed.
struct PostedCollective {
  using Clock = std::chrono::steady_clock;

  uint64_t number = 0;    // on its channel, from 0
  const char* name = "";  // "allreduce"
  int root = -1;          // the process that a broadcast is from
  int64_t elements = 0;
  const char* type = "";  // of the elements: "float32"
  Clock::time_point begin = Clock::now();
  std::optional<Call> call = {};  // of a communicator, that it serves
};

// "allreduce 17 of 25,600 float32", "broadcast 3 from process 1 of 5 float32"; the text of its call if it
// serves one.
std::string text_of(const PostedCollective& collective);

// A collective that has not ended.
struct AwaitedCollective {
  PostedCollective collective;
  PostedCollective::Clock::time_point end;  // when it failed; now if nothing has
  bool failed = false;
};

// A channel shares it with Gloo's threads, which may end a collective after the channel is gone. Thread-safe.
class PostedCollectives {
 public:
  // The future of a collective that begins. After fail() it throws that error.
  std::future<void> begin(const PostedCollective& collective);

  // Completes the future. No effect if the collective has ended.
  void finish(uint64_t number);

  // If the collectives fail from now on, they do with this error. The first one stays.
  void preset_error(const std::exception_ptr& error);

  // Ends all collectives with this error, or the one foreseen, now and later. The first error stays.
  void fail(const std::exception_ptr& error);

  bool failed() const;
  // Returns true if a collective failed. After fail() with nothing under way: false, until one begins.
  bool lost_any() const;
  bool idle() const;  // nothing is under way, and nothing has failed

  // The oldest collective under way, or the one that was so at the first error; nullopt if there is none.
  // (Gloo works on one after the other.)
  std::optional<AwaitedCollective> awaited() const;

 private:
  struct Entry {
    PostedCollective collective;
    std::promise<void> promise;
  };

  std::optional<AwaitedCollective> oldest(bool failed) const;

  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;  // by number
  std::exception_ptr preset_error_;
  std::exception_ptr error_;
  bool lost_any_ = false;
  std::optional<AwaitedCollective> failed_;  // at the first error
};

}  // namespace lockstep
