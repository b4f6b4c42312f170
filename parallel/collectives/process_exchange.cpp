#include <lockstep/parallel/collectives/process_exchange.h>

namespace lockstep {

Channel& LocalRound::channel(int index) const {
  auto& channel = *exchange->channels[static_cast<size_t>(index)];
  channel.serve(call);
  return channel;
}

namespace {

// Fills exchange.all from exchange.own and the other processes. All of them send equally much: a process with
// fewer replicas than another one sends zeros in place of the missing ones.
void gather_through_channel(const LocalRound& round) {
  auto& exchange = *round.exchange;
  const auto& layout = exchange.layout;
  const int64_t n = exchange.own.front().numel();
  const auto options = torch::TensorOptions(exchange.own.front().scalar_type());
  const auto sent = torch::zeros({layout.most_replicas(), n}, options);
  for (size_t i = 0; i < exchange.own.size(); ++i) sent[static_cast<int64_t>(i)].copy_(exchange.own[i]);
  exchange.all = torch::empty({layout.processes(), layout.most_replicas(), n}, options);
  round.channel().all_gather(sent, exchange.all).get();
}

}  // namespace

torch::Tensor host_room(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).pinned_memory(true));
}

torch::Tensor on_host(const torch::Tensor& tensor) {
  auto host = host_room(tensor);
  if (!tensor.is_cpu()) host.copy_(tensor);
  return host;
}

void compare_with_other_processes(const LocalRound& round) {
  if (round.local == 0) round.channel().broadcast(torch::zeros({1}, torch::kByte), 0).get();
}

int receive_from(const LocalRound& round, int root) {
  const auto& layout = round.exchange->layout;
  const int owner = layout.process_of(root);
  const bool is_here = owner == layout.process();
  const int holder = is_here ? root - layout.first_rank() : 0;
  if (round.local == holder) {
    const auto host = is_here ? on_host(round.own()) : host_room(round.own());
    round.channel().broadcast(host, owner).get();
    if (!is_here && !round.own().is_cpu()) round.own().copy_(host);
  }
  round.barrier();
  return holder;
}

void gather_from_all(const LocalRound& round, const torch::Tensor& rows) {
  auto& exchange = *round.exchange;
  auto& own = exchange.own[static_cast<size_t>(round.local)];
  own = on_host(round.own());  // each thread's own: it waits for the stream of its device
  round.barrier();
  if (round.local == 0) gather_through_channel(round);
  round.barrier();
  int64_t rank = 0;
  for (int process = 0; process < exchange.layout.processes(); ++process) {
    for (int replica = 0; replica < exchange.layout.replicas(process); ++replica) {
      rows[rank++].copy_(exchange.all[process][replica]);
    }
  }
  round.barrier();
  own.reset();
  if (round.local == 0) exchange.all.reset();
}

}  // namespace lockstep
