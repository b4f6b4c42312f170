// reduce_scatter() and gather_parts() between processes. What the replicas of a process own together is cut
// into as many pieces as there are channels. Replica i of a process with L replicas takes the channels i, i+L
// and so on, each with one piece of every process: so all connections are busy at the same time. Nothing
// travels that the other process has not asked for: each process sends (N-1)/N of a tensor in either of them.
#include <future>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/allreduce/sum_chunks.h>
#include <lockstep/parallel/collectives/local_round.h>
#include <lockstep/parallel/collectives/part_collectives.h>
#include <lockstep/parallel/collectives/process_exchange.h>

namespace lockstep {
namespace {

// Who owns what of the tensor, and which pieces of it take which channel.
class Pieces {
 public:
  Pieces(const LocalRound& round, const PartBounds& bounds) : round_(round), bounds_(bounds) {}

  int processes() const { return layout().processes(); }
  int process() const { return layout().process(); }
  int channels() const { return static_cast<int>(round_.exchange->channels.size()); }

  // The piece of a process for a channel.
  ElementRange of(int process, int channel) const {
    const auto begin = bound(layout().first_rank(process));
    const auto size = bound(layout().first_rank(process + 1)) - begin;
    return {begin + size * channel / channels(), begin + size * (channel + 1) / channels()};
  }

  // The part of this process's piece that a local replica owns. May be empty.
  ElementRange owned(const ElementRange& own, int local) const {
    const int rank = layout().first_rank() + local;
    return overlap(own, {bound(rank), bound(rank + 1)});
  }

  // Elements of all processes' pieces.
  int64_t elements(int channel) const {
    int64_t sum = 0;
    for (int other = 0; other < processes(); ++other) sum += of(other, channel).size();
    return sum;
  }

 private:
  const RankLayout& layout() const { return round_.exchange->layout; }
  int64_t bound(int rank) const { return bounds_[static_cast<size_t>(rank)]; }

  const LocalRound& round_;
  const PartBounds& bounds_;
};

// The exchange of one channel. Its own process sends itself nothing.
struct Exchange {
  int channel = 0;
  torch::Tensor received = {};  // in host memory: one part per other process, in their order
  std::future<void> done = {};
};

// One part per other process, side by side in host memory: the tensors themselves if there is one.
torch::Tensor side_by_side(const std::vector<torch::Tensor>& parts) {
  if (parts.size() == 1) return on_host(parts.front());
  std::vector<torch::Tensor> hosts;
  for (const auto& part : parts) hosts.push_back(on_host(part));
  return torch::cat(hosts);
}

// Sends every process this one's sum of its piece.
Exchange send_sums(const LocalRound& round, const Pieces& pieces, int channel) {
  const auto own = pieces.of(pieces.process(), channel);
  DealtSizes sizes;
  std::vector<torch::Tensor> sent;
  for (int other = 0; other < pieces.processes(); ++other) {
    const auto piece = pieces.of(other, channel);
    sum_locally(round, piece);
    const bool is_own = other == pieces.process();
    sizes.sent.push_back(is_own ? 0 : piece.size());
    sizes.received.push_back(is_own ? 0 : own.size());
    if (!is_own) sent.push_back(round.elements(round.local, piece));
  }
  Exchange exchange{.channel = channel};
  exchange.received = torch::empty({(pieces.processes() - 1) * own.size()}, round.own().scalar_type());
  exchange.done = round.channel(channel).all_to_all(side_by_side(sent), exchange.received, std::move(sizes));
  return exchange;
}

// Adds the sums of all processes, in their order, where their owners have them.
void add_sums(const LocalRound& round, const Pieces& pieces, const Exchange& exchange) {
  const auto own = pieces.of(pieces.process(), exchange.channel);
  for (int owner = 0; owner < round.size(); ++owner) {
    const auto owned = pieces.owned(own, owner);
    if (owned.empty()) continue;
    std::vector<torch::Tensor> addends;
    int64_t received = 0;
    for (int process = 0; process < pieces.processes(); ++process) {
      if (process == pieces.process()) {
        addends.push_back(round.elements(round.local, owned));
        continue;
      }
      addends.push_back(exchange.received.narrow(0, received + owned.begin - own.begin, owned.size()));
      received += own.size();
    }
    sum_chunks(addends, {round.elements(owner, owned)}, round.own().device());
  }
}

// Sends every process this one's piece.
Exchange send_piece(const LocalRound& round, const Pieces& pieces, int channel) {
  const auto own = pieces.of(pieces.process(), channel);
  DealtSizes sizes;
  int64_t others = 0;
  torch::Tensor direct;  // where the piece of the only other process goes
  for (int other = 0; other < pieces.processes(); ++other) {
    const auto piece = pieces.of(other, channel);
    const bool is_own = other == pieces.process();
    sizes.sent.push_back(is_own ? 0 : own.size());
    sizes.received.push_back(is_own ? 0 : piece.size());
    if (!is_own) direct = round.elements(round.local, piece);
    others += sizes.received.back();
  }
  const std::vector<torch::Tensor> sent(static_cast<size_t>(pieces.processes() - 1),
                                        round.elements(round.local, own));
  Exchange exchange{.channel = channel};
  exchange.received =
      pieces.processes() == 2 && direct.is_cpu() ? direct : torch::empty({others}, round.own().scalar_type());
  exchange.done = round.channel(channel).all_to_all(side_by_side(sent), exchange.received, std::move(sizes));
  return exchange;
}

// Copies the other processes' pieces to all local replicas.
void keep_pieces(const LocalRound& round, const Pieces& pieces, const Exchange& exchange) {
  int64_t begin = 0;
  for (int process = 0; process < pieces.processes(); ++process) {
    if (process == pieces.process()) continue;
    const auto piece = pieces.of(process, exchange.channel);
    const auto found = exchange.received.narrow(0, begin, piece.size());
    begin += piece.size();
    for (int local = 0; local < round.size(); ++local) {
      const auto room = round.elements(local, piece);
      // Another replica's stream does not wait for this thread's copy.
      const bool in_order = local == round.local;
      if (room.data_ptr() != found.data_ptr()) room.copy_(found, /*non_blocking=*/in_order);
    }
  }
}

}  // namespace

void reduce_scatter_gloo(const LocalRound& round, const PartBounds& bounds) {
  const Pieces pieces(round, bounds);
  std::vector<Exchange> exchanges;
  for (int channel = round.local; channel < pieces.channels(); channel += round.size()) {
    if (pieces.elements(channel) == 0) continue;  // in every process
    exchanges.push_back(send_sums(round, pieces, channel));
  }
  for (auto& exchange : exchanges) {
    exchange.done.get();
    add_sums(round, pieces, exchange);
  }
}

void gather_parts_gloo(const LocalRound& round, const PartBounds& bounds) {
  const Pieces pieces(round, bounds);
  gather_parts_locally(round, bounds);
  round.barrier();  // now each local replica can send any piece of this process
  std::vector<Exchange> exchanges;
  for (int channel = round.local; channel < pieces.channels(); channel += round.size()) {
    if (pieces.elements(channel) == 0) continue;  // in every process
    exchanges.push_back(send_piece(round, pieces, channel));
  }
  for (auto& exchange : exchanges) {
    exchange.done.get();
    keep_pieces(round, pieces, exchange);
  }
}

}  // namespace lockstep
