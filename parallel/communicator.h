// Collectives between replicas, in one process or several.
//
// A Communicator spans world_size() replicas. This process drives local_size() of them, whose ranks begin at
// first_rank(). Each replica's worker thread uses the Endpoint of its own rank.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/support/choices.h>

namespace lockstep {

class ProcessGroup;
class Trace;

// Handle of a posted collective. Use it from one thread.
class Work {
 public:
  using Done = std::shared_ptr<c10::Event>;  // null on a CPU

  Work() = default;  // nothing to wait for
  explicit Work(std::future<Done> done) : done_(std::move(done)) {}

  // Afterwards the result may be used. On a CPU wait() blocks until it is there; on a GPU the calling
  // thread's current stream waits for it and the host does not (with kGloo it waits for the other processes).
  // Throws the error that ended the collective. A second call does nothing.
  void wait();

  // Returns work whose wait() also calls `next`, once, in the thread that waits: on a GPU, what `next` queues
  // on the current stream runs after the collective. wait() throws what `next` throws; `next` is not called
  // after an error. This handle then has nothing to wait for.
  Work then(std::function<void()> next);

 private:
  std::future<Done> done_;
  std::function<void()> next_ = nullptr;  // may be empty
};

// The parts of a tensor that the ranks own: rank r the elements from bounds[r] to bounds[r + 1]. world_size +
// 1 numbers, ascending from 0 to the tensor's number of elements, the same on every rank. Parts may be empty.
using PartBounds = std::vector<int64_t>;

// One replica's handle. Post from one thread. All replicas post the same collectives in the same order.
// Tensors must be contiguous, on device(), and of the same number of elements and dtype on every rank; do not
// touch them before wait() has returned. With several communicators all ranks use them in the same order.
// Posting returns at once; the collective starts after all work that is on the calling thread's current
// stream. wait() throws every error that is known by then, such as UsageError for a wrong argument or a
// mismatch between the ranks of this process, and PeerError when another process is lost or calls something
// else on this communicator: then all ranks get one that names both calls, after a second or two. (NCCL does
// not compare the processes' calls.) Processes that wait on different communicators get one at the timeout,
// and ProcessGroup::explain() tells what each waits for. On a GPU a collective may fail after wait(): see
// error(). After an error every collective of every rank of this process fails with it; other processes
// notice when it leaves, or by their timeouts.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual torch::Device device() const = 0;

  // tensor becomes the sum over all ranks, with the same bits on every rank of one device type. It takes
  // floating-point and complex numbers of 16 bits and more per real one, and integers, which wrap around. The
  // sum of Bools is true where one is. Other dtypes (the float8 kinds) are a UsageError.
  virtual Work allreduce_sum(torch::Tensor tensor) = 0;
  // The same for gradients: if CommunicatorOptions::compress says so and they are float or complex float,
  // they are rounded on their way between processes. Otherwise this is allreduce_sum().
  virtual Work allreduce_gradients(torch::Tensor tensor) { return allreduce_sum(std::move(tensor)); }
  // tensor becomes rank `root`'s. This and all_gather() take every dtype: they move bytes.
  virtual Work broadcast(torch::Tensor tensor, int root) = 0;
  // out becomes the tensors of all ranks, in order: world_size x numel elements, contiguous, of any shape.
  virtual Work all_gather(torch::Tensor tensor, torch::Tensor out) = 0;

  // The two halves of allreduce_sum(). The part of the tensor that this rank owns becomes its sum over all
  // ranks, with the bits of allreduce_sum() by any algorithm but kRing; the rest of the tensor is undefined
  // then. Takes real floating-point numbers.
  virtual Work reduce_scatter(torch::Tensor tensor, PartBounds bounds);
  // Each part of the tensor becomes that of the rank that owns it. Takes every dtype.
  virtual Work gather_parts(torch::Tensor tensor, PartBounds bounds);

  // Ends the collectives of all ranks of this process with this error, those in flight and all later ones.
  // Thread-safe.
  virtual void abort(std::exception_ptr error) = 0;
  // The error that ended the collectives; null while there is none. Check it after waiting for a GPU: there
  // wait() returns before the collective has finished, and cannot throw a later error. Thread-safe.
  virtual std::exception_ptr error() const = 0;

  // How many collectives this rank has posted so far. Thread-safe.
  virtual int64_t posted() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int world_size() const = 0;
  virtual int local_size() const = 0;
  virtual int first_rank() const = 0;
  // local: 0 .. local_size() - 1
  virtual Endpoint& endpoint(int local) = 0;
};

// Throws the error of a collective that failed on a GPU: its own caller has only queued it. Wait for the GPUs
// first.
void throw_if_aborted(Communicator& communicator);

// The algorithm that sums gradients. Costs for n replicas with S bytes each; a chunk is S/n bytes.
enum class Allreduce {
  kAuto,     // kNccl for several distinct GPUs, else kTwoShot in one process and kGloo across processes
  kRoot,     // the chapter's: n-1 sums into the first replica, then n-1 copies back, one after the other
  kTwoShot,  // rank i sums chunk i and copies it to all others: each replica moves 2 S (n-1)/n bytes
  kRing,     // chunks travel round a ring in 2 (n-1) steps; each replica reads from one neighbour only
  kNccl,     // NVIDIA's library, between distinct GPUs
  kGloo,     // across processes: chunks are summed in each process, then by c10d's Gloo in host memory
};

inline constexpr Choice<Allreduce> kAllreduceNames[] = {
    {"auto", Allreduce::kAuto}, {"root", Allreduce::kRoot}, {"two_shot", Allreduce::kTwoShot},
    {"ring", Allreduce::kRing}, {"nccl", Allreduce::kNccl}, {"gloo", Allreduce::kGloo}};

// Resolves kAuto for the devices of this process and returns any other choice as it is. Throws UsageError for
// an algorithm that does not span the processes, and for kGloo in one process; UsageError or DeviceError when
// `wanted` is kNccl and NCCL cannot join the devices. group (null: this process is alone): every process
// calls it with the same choice, else all get a UsageError; it also throws as ProcessGroup::gather() does.
Allreduce choose_allreduce(Allreduce wanted, std::span<const torch::Device> devices,
                           ProcessGroup* group = nullptr);

// The form in which a sum of float gradients travels between processes (Endpoint::allreduce_gradients). With
// kBf16 and kFp16 each process rounds its own sum to 16 bits, these are added in float, and the total is
// rounded once more: an error of at most about 2u (|x_0| + |x_1| + ...), where x_i is process i's sum and u
// is 2^-8 for bf16, 2^-11 for fp16. All ranks get the same bits. bf16 has float's range. fp16 is more
// precise, but has a smaller one: what is above 65,504 becomes infinite, and what is below 2^-25 becomes 0.
// Nothing is scaled or cut off: a gradient that does not fit shows in the loss of the next step, which is no
// finite number.
enum class Compress { kNone, kBf16, kFp16 };

inline constexpr Choice<Compress> kCompressNames[] = {
    {"none", Compress::kNone}, {"bf16", Compress::kBf16}, {"fp16", Compress::kFp16}};

struct CommunicatorOptions {
  std::vector<torch::Device> devices;  // one replica each; a device may be listed more than once
  // Intra-op threads of each replica's worker, whose cores its communication thread shares: as many as
  // ReplicaWorkers is given. Empty: the cores of this process divided by its replicas.
  std::optional<int> threads = {};
  Allreduce algorithm = Allreduce::kAuto;
  std::shared_ptr<ProcessGroup> process_group = nullptr;  // null: this process alone
  Compress compress = Compress::kNone;                    // others: between processes, by kGloo
  // Gets one span per collective and rank, except for sums in a world of one. Must outlive the communicator.
  Trace* trace = nullptr;
};

// A communicator between the replicas of this process and, with options.process_group, of the others: every
// process calls it at the same point. The numbers of devices may differ between processes, and ranks follow
// from them. Each replica gets a thread that does its part of every collective and sleeps in between.
// Endpoints live as long as the communicator. Wait for every posted collective before you destroy it;
// destruction may end the rest unfinished. Throws as choose_allreduce() and ProcessGroup::gather() do,
// UsageError for an empty list, for `compress` in one process or with NCCL, and where processes compress
// differently, and MemoryError if the system cannot start a thread.
std::unique_ptr<Communicator> make_communicator(CommunicatorOptions options);

}  // namespace lockstep
