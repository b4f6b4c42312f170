// A sum of float numbers between processes. Each number travels as 16 bits.
//
//   CompressedSum sum(channel, processes, Compress::kBf16, own);
//   sum.send_total();
//   result = sum.total();
//
// The numbers are cut into one part per process, and each process adds one part. So there are two roundings,
// however many processes there are: of each process's number, and of the total. (Gloo's own sum of bf16
// numbers rounds at every hop.)
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <future>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// The dtype that travels. compress: not kNone.
torch::ScalarType sent_type(Compress compress);

// Bytes of host memory, at the peak, in which the sum of n numbers travels in each process. However many
// CompressedSums share the numbers, it is the same except for uneven parts.
int64_t compressed_sum_bytes(int64_t n, int processes);

// Use it from one thread, the channel's. Throws what the channel does.
class CompressedSum {
 public:
  // Rounds own (n) float, n > 0, and sends each process its part. own may be on a GPU, whose current stream
  // has then finished; it can be changed at once. All processes give as many numbers.
  CompressedSum(Channel& channel, int processes, Compress compress, const torch::Tensor& own);

  // Waits for this process's part of all others, adds them in float, in the order of processes, and sends the
  // rounded total to all.
  void send_total();

  // Waits for the totals of all parts. Returns the sum (n) in sent_type(), the same bits in every process. It
  // is in host memory, pinned if own is on a GPU.
  torch::Tensor total();

 private:
  Channel* channel_;
  int64_t n_;
  // A part has n / processes numbers, rounded up; the last ones are filled up with zeros.
  torch::Tensor parts_;     // (processes, part): this process's numbers, and later the total
  torch::Tensor received_;  // (processes, part): this process's part, from each process
  std::future<void> done_;  // of the exchange under way
};

}  // namespace lockstep
