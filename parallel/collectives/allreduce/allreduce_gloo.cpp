// Allreduce across processes. Every process cuts the tensor at the same boundaries into P chunks, where P is
// the largest number of replicas in one process. Replica i of a process with L replicas takes the chunks i,
// i+L and so on: it sums each over the local replicas, in the order of their ranks, and posts it on that
// chunk's own channel. When all of its chunks are posted it waits for each and copies it to the other local
// replicas. So all connections are busy at the same time, even from a process with one replica, and no
// replica waits for another one in between. All ranks get the same bits, which the channel gives every
// process.
//
// Gloo's own sum adds in an order that depends on the place in the chunk. Between two processes there is only
// one; between more of them floating-point numbers are added in the order of processes, so that a part of a
// tensor gets the same bits however it is cut (Endpoint::reduce_scatter()). So are numbers that travel
// rounded. That takes two exchanges per chunk. All of a replica's chunks are posted for the first one; then
// each is added as it arrives and posted for the second one, while the next ones are still under way.
#include <future>
#include <vector>

#include <lockstep/parallel/collectives/local_round.h>
#include <lockstep/parallel/collectives/ordered_sum.h>
#include <lockstep/parallel/collectives/process_exchange.h>

namespace lockstep {
namespace {

struct PostedChunk {
  int index;
  torch::Tensor host;  // (n) what travels
  std::future<void> done;
};

// Copies chunk `index` of this replica to the other local ones.
void copy_to_local_replicas(const LocalRound& round, int index, int count) {
  const auto own = round.chunk(round.local, index, count);
  for (int other = 0; other < round.size(); ++other) {
    if (other != round.local) round.chunk(other, index, count).copy_(own);
  }
}

struct OrderedChunk {
  int index;
  OrderedSum sum;
};

}  // namespace

void allreduce_gloo(const LocalRound& round) {
  const auto type = round.own().scalar_type();
  const bool depends_on_order = type == torch::kFloat || type == torch::kDouble;
  if (depends_on_order && round.exchange->layout.processes() > 2) return allreduce_in_order(round, type);
  const auto count = static_cast<int>(round.exchange->channels.size());
  std::vector<PostedChunk> posted;
  for (int index = round.local; index < count; index += round.size()) {
    const auto own = round.chunk(round.local, index, count);
    if (own.numel() == 0) continue;  // in every process
    sum_locally(round, round.range_of_chunk(index, count));
    auto host = on_host(own);
    auto done = round.channel(index).allreduce_sum(host);
    posted.push_back({index, std::move(host), std::move(done)});
  }
  for (auto& chunk : posted) {
    chunk.done.get();
    const auto own = round.chunk(round.local, chunk.index, count);
    if (!own.is_cpu()) own.copy_(chunk.host, /*non_blocking=*/true);
    copy_to_local_replicas(round, chunk.index, count);
  }
}

void allreduce_in_order(const LocalRound& round, torch::ScalarType sent) {
  const int processes = round.exchange->layout.processes();
  const auto count = static_cast<int>(round.exchange->channels.size());
  std::vector<OrderedChunk> chunks;
  for (int index = round.local; index < count; index += round.size()) {
    const auto own = round.chunk(round.local, index, count);
    if (own.numel() == 0) continue;  // in every process
    sum_locally(round, round.range_of_chunk(index, count));
    chunks.push_back({index, OrderedSum(round.channel(index), processes, sent, own)});
  }
  for (auto& chunk : chunks) chunk.sum.send_total();
  for (auto& chunk : chunks) {
    const auto own = round.chunk(round.local, chunk.index, count);
    // A GPU gets 16 bits of each number.
    own.copy_(chunk.sum.total().to(own.device(), /*non_blocking=*/true));
    copy_to_local_replicas(round, chunk.index, count);
  }
}

}  // namespace lockstep
