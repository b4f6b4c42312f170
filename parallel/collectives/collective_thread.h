// What endpoints of all kinds have in common: a replica's communication thread, with a stream of its own.
#pragma once

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/parallel/timing/phase_span.h>

namespace lockstep {

struct CollectiveThreadOptions {
  int local = 0;                       // which of the local replicas
  std::vector<torch::Device> devices;  // of all local replicas
  int threads = 1;  // intra-op threads of each replica's worker: its cores are shared with it
  Trace* trace = nullptr;
};

// Does one endpoint's collectives in the order in which they were posted. Used by that endpoint, and declared
// as its last member: what the collectives use must outlive the thread.
class CollectiveThread {
 public:
  // In the communication thread; the stream is none on a CPU.
  using Collective = std::function<void(const std::optional<c10::Stream>& stream)>;

  CollectiveThread(Endpoint& endpoint, CollectiveThreadOptions options);

  // Queues `collective`, which starts after what the calling thread's current stream holds and keeps to the
  // stream it is given. tensor: what it works on; it must be on the endpoint's device and contiguous.
  // problem: what else is wrong with the arguments, if anything. A problem, and what the collective throws,
  // ends the collectives of all ranks (Endpoint::abort).
  Work post(std::string what, const torch::Tensor& tensor, Collective collective,
            std::exception_ptr problem = nullptr);

 private:
  void set_up() noexcept;
  Work::Done run(const std::string& what, const torch::Tensor& tensor, const Collective& collective);

  Endpoint& endpoint_;
  const CollectiveThreadOptions options_;
  std::optional<c10::Stream> stream_;
  std::optional<DeviceClock> clock_;
  std::exception_ptr set_up_error_;  // of the thread
  TaskThread thread_;                // last: it uses all of the above
};

// Why a collective of this endpoint cannot take this tensor; null if it can.
std::exception_ptr unfit(const Endpoint& endpoint, const std::string& what, const torch::Tensor& tensor);

// Why all_gather cannot put `tensor` of each rank into `out`; null if it can.
std::exception_ptr unfit_gather(const Endpoint& endpoint, const torch::Tensor& tensor,
                                const torch::Tensor& out);

// Why broadcast cannot start at this rank; null if it can.
std::exception_ptr unfit_root(const Endpoint& endpoint, int root);

// "5 elements of Float"
std::string describe_elements(const torch::Tensor& tensor);

}  // namespace lockstep
