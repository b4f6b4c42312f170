// A replica's communication thread, with its own stream. Endpoints of all kinds use it.
#pragma once

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <atomic>
#include <cstdint>
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
  int local = 0;                       // index of the replica among the local ones
  std::vector<torch::Device> devices;  // of all local replicas
  int threads = 1;  // intra-op threads of the replica's worker, whose cores this thread shares
  Trace* trace = nullptr;
};

// Runs one endpoint's collectives in the order in which they were posted. Declare it as the endpoint's last
// member: what the collectives use must outlive the thread.
class CollectiveThread {
 public:
  // Called in the communication thread. stream: queue GPU work there; nullopt on a CPU.
  using Collective = std::function<void(const std::optional<c10::Stream>& stream)>;

  // Starts the thread. Throws MemoryError if the system cannot start one.
  CollectiveThread(Endpoint& endpoint, CollectiveThreadOptions options);

  // Queues `collective` and returns at once. It starts after all work that is now on the calling thread's
  // current stream. what: its name in traces and errors. tensor: must be contiguous and on the endpoint's
  // device. problem: another error in the arguments, or null. An error in the arguments and anything the
  // collective throws end the collectives of all ranks (Endpoint::abort).
  Work post(std::string what, const torch::Tensor& tensor, Collective collective,
            std::exception_ptr problem = nullptr);

  // How many calls of post() there were. Thread-safe.
  int64_t posted() const { return posted_; }

 private:
  void set_up() noexcept;
  Work::Done run(const std::string& what, const torch::Tensor& tensor, const Collective& collective);

  Endpoint& endpoint_;
  const CollectiveThreadOptions options_;
  std::optional<c10::Stream> stream_;
  std::optional<DeviceClock> clock_;
  std::exception_ptr set_up_error_;
  std::atomic<int64_t> posted_ = 0;
  TaskThread thread_;  // last: it uses all of the above
};

// The error (UsageError) when a collective of this endpoint cannot take this tensor; null when it can.
std::exception_ptr tensor_problem(const Endpoint& endpoint, const std::string& what,
                                  const torch::Tensor& tensor);

// The error when all_gather cannot put `tensor` of each rank into `out`; null when it can.
std::exception_ptr gather_problem(const Endpoint& endpoint, const torch::Tensor& tensor,
                                  const torch::Tensor& out);

// The error when `tensor` cannot be broadcast from `root`; null when it can.
std::exception_ptr root_problem(const Endpoint& endpoint, const torch::Tensor& tensor, int root);

// The error when the ranks' tensors cannot be added; null when they can.
std::exception_ptr sum_problem(const Endpoint& endpoint, const torch::Tensor& tensor);

// The sum of addends_of(tensor), as work on the tensor.
Work sum_into(const torch::Tensor& tensor, const torch::Tensor& addends, Work sum);

// "5 elements of Float"
std::string describe_elements(const torch::Tensor& tensor);

}  // namespace lockstep
