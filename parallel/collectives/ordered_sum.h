// A sum between processes that is added in their order, in one place per number. Each number may travel as 16
// bits.
//
//   OrderedSum sum(channel, processes, sent_type(Compress::kBf16), own);
//   sum.send_total();
//   result = sum.total();
//
// The numbers are cut into one part per process, and each process adds one part. So there are two roundings
// to the type that travels, however many processes there are: of each process's number, and of the total.
// (Gloo's own sum of bf16 numbers rounds at every hop, and its order of adding depends on the place.)
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <future>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// The dtype that travels. compress: not kNone.
torch::ScalarType sent_type(Compress compress);

// Bytes of host memory, at the peak, in which the sum of n float numbers travels in each process, as `sent`.
// However many OrderedSums share the numbers, it is the same except for uneven parts.
int64_t ordered_sum_bytes(int64_t n, int processes, torch::ScalarType sent);

// Use it from one thread, the channel's. Throws what the channel does.
class OrderedSum {
 public:
  // Rounds own (n) float or double, n > 0, to `sent` and sends each process its part. own may be on a GPU,
  // whose current stream has then finished; it can be changed at once. All processes give as many numbers.
  OrderedSum(Channel& channel, int processes, torch::ScalarType sent, const torch::Tensor& own);

  // Waits for this process's part of all others, adds them in own's type, in the order of processes, and
  // sends the rounded total to all.
  void send_total();

  // Waits for the totals of all parts. Returns the sum (n) as `sent`, the same bits in every process. It is
  // in host memory, pinned if own is on a GPU.
  torch::Tensor total();

 private:
  Channel* channel_;
  int64_t n_;
  torch::ScalarType added_;  // own's type
  // A part has n / processes numbers, rounded up; the last ones are filled up with zeros.
  torch::Tensor parts_;     // (processes, part): this process's numbers, and later the total
  torch::Tensor received_;  // (processes, part): this process's part, from each process
  std::future<void> done_;  // of the exchange under way
};

}  // namespace lockstep
