// Collectives between processes, on host memory.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/call.h>
#include <lockstep/parallel/process_group.h>

namespace lockstep {

// How many elements of an all_to_all go to each process, and come from it, by process; both are empty where
// each gets as many as the others.
struct DealtSizes {
  std::vector<int64_t> sent, received;
};

// All processes post the same collectives in the same order, on tensors of the same shape and dtype that are
// contiguous and on a CPU; else all get a PeerError that says so. Posting returns at once, so that several
// channels work side by side. Use a channel from one thread at a time. A future's get() returns when the
// result is there, and throws PeerError when the collective failed or passed the timeout, or the error given
// to abort(). Do not touch the tensors before. After an error the channel cannot be used.
class Channel {
 public:
  virtual ~Channel() = default;

  // Says for which call of a communicator the next collectives are posted: that of processes which make
  // different calls ends with an error that names both. Without it each collective is a call.
  virtual void serve(const Call& /*call*/) {}

  // tensor becomes the sum over all processes, with the same bits in each. It is one of numbers that are not
  // complex, without int16 and unsigned integers of more than 8 bits, or of Bool (addends_of()). The others
  // take any dtype.
  virtual std::future<void> allreduce_sum(torch::Tensor tensor) = 0;
  // tensor becomes that of `process`.
  virtual std::future<void> broadcast(torch::Tensor tensor, int process) = 0;
  // out[i] becomes process i's tensor. out (processes, ...tensor's shape).
  virtual std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) = 0;
  // In process p, part i of out becomes part p of process i's tensor: row by row, both (processes, ...) of
  // one shape; or with `sizes`, which fit those of the other processes, any shape. Without common memory.
  virtual std::future<void> all_to_all(torch::Tensor tensor, torch::Tensor out, DealtSizes sizes) = 0;
  std::future<void> all_to_all(torch::Tensor tensor, torch::Tensor out) {
    return all_to_all(std::move(tensor), std::move(out), {});
  }

  // Ends every wait, now and later, with this error. Sums under way are abandoned, not destroyed: nothing
  // waits for a peer that is gone. Thread-safe. The first error stays.
  virtual void abort(std::exception_ptr error) noexcept = 0;
};

// Opens channels between the processes of this group, each with its own order of collectives. Waits until
// every process has called it. Throws as ProcessGroup::gather() does.
std::vector<std::unique_ptr<Channel>> open_channels(ProcessGroup& group, int count);

// The same for one.
std::unique_ptr<Channel> open_channel(ProcessGroup& group);

}  // namespace lockstep
