// Collectives between replicas: one interface for replicas of one process and of many.
//
// A Communicator spans world_size() replicas, of which this process drives local_size(), with ranks from
// first_rank() on. Each replica's worker thread uses the Endpoint of its own rank.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <exception>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/support/choices.h>

namespace lockstep {

class Trace;

// A collective that has been posted.
class Work {
 public:
  using Done = std::shared_ptr<c10::Event>;  // null on a CPU

  Work() = default;  // nothing to wait for
  explicit Work(std::future<Done> done) : done_(std::move(done)) {}

  // Afterwards the result may be used: on a CPU it is there; on a GPU the calling thread's current stream
  // waits for it, and the host does not. Throws what ended the collective. The second call does nothing.
  void wait();

 private:
  std::future<Done> done_;
};

// One replica's handle. Used from one thread; all replicas post the same collectives in the same order. A
// tensor is contiguous, on device(), of the same shape and dtype on every rank, and neither freed nor touched
// until wait(). Posting returns at once; work starts after what the current stream holds. Errors, an argument
// that will not do and a mismatch between ranks too, come out of wait(); after one, every collective of every
// rank fails with it.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual torch::Device device() const = 0;

  // tensor becomes the sum over all ranks, with the same bits on every rank of one device type.
  virtual Work allreduce_sum(torch::Tensor tensor) = 0;
  // tensor becomes rank `root`'s.
  virtual Work broadcast(torch::Tensor tensor, int root) = 0;
  // out[i] becomes rank i's tensor. out (world_size, ...tensor's shape).
  virtual Work all_gather(torch::Tensor tensor, torch::Tensor out) = 0;

  // Ends the collectives of all ranks with this error, those under way and all to come. From any thread.
  virtual void abort(std::exception_ptr error) = 0;
  // What has ended them; null while nothing has. Who has waited for a GPU looks here: wait() there does not
  // wait for the collective itself, so that what goes wrong afterwards cannot come out of it. From any
  // thread.
  virtual std::exception_ptr error() const = 0;
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

// How gradients are summed. With n replicas of S bytes each:
enum class Allreduce {
  kAuto,     // nccl between several distinct GPUs, elsewhere two_shot
  kRoot,     // into the first, then back to all (the chapter's): n-1 sums and n-1 copies, one after the other
  kTwoShot,  // rank i sums chunk i and hands it to all others: one step whatever n, 2 S (n-1)/n moved by each
  kRing,     // chunks travel round a ring: 2 (n-1) steps of S/n, each replica talks to its neighbour alone
  kNccl,     // NVIDIA's library, between distinct GPUs
};

inline constexpr Choice<Allreduce> kAllreduceNames[] = {{"auto", Allreduce::kAuto},
                                                        {"root", Allreduce::kRoot},
                                                        {"two_shot", Allreduce::kTwoShot},
                                                        {"ring", Allreduce::kRing},
                                                        {"nccl", Allreduce::kNccl}};

// What kAuto is for these devices; others stay what they are. Throws UsageError or DeviceError where `wanted`
// cannot serve them.
Allreduce choose_allreduce(Allreduce wanted, std::span<const torch::Device> devices);

struct CommunicatorOptions {
  std::vector<torch::Device> devices;  // one replica each, may repeat
  int threads = 1;  // intra-op threads of each replica's worker: its cores are shared with it
  Allreduce algorithm = Allreduce::kAuto;
  // Takes a span a collective and rank, but for sums in a world of one, which are no work; outlives the
  // communicator.
  Trace* trace = nullptr;
};

// Between the replicas of this process: local_size() == world_size(). Each replica gets a thread that does
// its share of every collective, asleep in between. Endpoints live as long as the communicator; what has not
// been waited for when it goes is lost. Throws as choose_allreduce() does.
std::unique_ptr<Communicator> make_communicator(CommunicatorOptions options);

}  // namespace lockstep
