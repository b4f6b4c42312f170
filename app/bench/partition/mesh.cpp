#include <lockstep/app/bench/partition/mesh.h>

#include <numeric>

#include <lockstep/support/cuda/stream.h>

namespace lockstep {
namespace {

// The end of the work that is now on the calling thread's stream.
Work::Done event_now(torch::Device device) {
  if (device.is_cpu()) return nullptr;
  auto event = std::make_shared<c10::Event>(device.type());
  event->record(current_stream(device));
  return event;
}

// The first index of dimension 1 that belongs to the rank.
int64_t begin_of(std::span<const int64_t> sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
}

torch::Tensor part_of(const torch::Tensor& whole, std::span<const int64_t> sizes, int rank) {
  return whole.narrow(1, begin_of(sizes, rank), sizes[static_cast<size_t>(rank)]);
}

int64_t bytes_of(const torch::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

Mesh::Mesh(std::vector<torch::Device> devices, int threads)
    : workers_(std::move(devices), threads),
      threads_(threads),
      arrived_(static_cast<size_t>(size())),
      tracks_(static_cast<size_t>(size()) * static_cast<size_t>(size())) {}

void Mesh::run(const std::function<void(int rank)>& task) {
  {
    const std::lock_guard lock(mutex_);
    error_ = nullptr;
    for (auto& track : tracks_) track.clear();
  }
  workers_.run([&](int rank) {
    try {
      task(rank);
    } catch (...) {
      abort(std::current_exception());
      throw;
    }
  });
}

void Mesh::synchronize(int rank) {
  if (!device(rank).is_cpu()) current_stream(device(rank)).synchronize();
}

void Mesh::abort(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  for (auto& arrived : arrived_) arrived.notify_all();
}

void Mesh::send(int from, int to, const torch::Tensor& tensor) {
  Parcel parcel{tensor.detach(), event_now(device(from))};
  {
    const std::lock_guard lock(mutex_);
    track(from, to).push_back(std::move(parcel));
  }
  arrived_[static_cast<size_t>(to)].notify_one();
}

torch::Tensor Mesh::take(int to, int from) {
  std::unique_lock lock(mutex_);
  auto& parcels = track(from, to);
  arrived_[static_cast<size_t>(to)].wait(lock, [&] { return error_ || !parcels.empty(); });
  if (error_) std::rethrow_exception(error_);
  const auto [tensor, ready] = std::move(parcels.front());
  parcels.pop_front();
  lock.unlock();
  if (ready && device(to).is_cpu()) ready->synchronize();  // a CPU has no stream that could wait
  if (!ready || device(to).is_cpu()) return tensor;
  // torch copies between two GPUs on the calling thread's stream of the source GPU. The sender's memory must
  // not be reused before both streams have passed the copy.
  for (const auto reader : {tensor.device(), device(to)}) {
    const auto stream = current_stream(reader);
    ready->block(stream);
    tensor.record_stream(stream);
  }
  return tensor;
}

torch::Tensor Mesh::receive(int to, int from) {
  const auto tensor = take(to, from);
  count({.bytes = bytes_of(tensor), .synchronisations = 1});
  return torch::empty_like(tensor, tensor.options().device(device(to))).copy_(tensor);
}

void Mesh::exchange(int rank, const torch::Tensor& own,
                    const std::function<torch::Tensor(int other, const torch::Tensor& theirs)>& read) {
  const torch::NoGradGuard no_grad;
  for (int other = 0; other < size(); ++other) {
    if (other != rank) send(rank, other, own);
  }
  if (rank == 0) count({.bytes = 0, .synchronisations = 1});
  for (int other = 0; other < size(); ++other) {
    const auto part = read(other, other == rank ? own : take(rank, other));
    if (other != rank) count({.bytes = bytes_of(part), .synchronisations = 0});
  }
}

torch::Tensor Mesh::gather(int rank, const torch::Tensor& own, std::span<const int64_t> sizes) {
  auto shape = own.sizes().vec();
  shape[1] = begin_of(sizes, size());
  const auto all = torch::empty(shape, own.options(), own.suggest_memory_format());
  exchange(rank, own,
           [&](int other, const torch::Tensor& theirs) { return part_of(all, sizes, other).copy_(theirs); });
  return all;
}

torch::Tensor Mesh::sum_own(int rank, const torch::Tensor& partial, std::span<const int64_t> sizes) {
  torch::Tensor sum;
  exchange(rank, partial, [&](int, const torch::Tensor& whole) {
    const auto part = part_of(whole, sizes, rank).to(device(rank));
    sum = sum.defined() ? sum.add_(part) : part.clone();
    return part;
  });
  return sum;
}

void Mesh::count(const Traffic& traffic) {
  bytes_ += traffic.bytes;
  synchronisations_ += traffic.synchronisations;
}

Traffic Mesh::take_traffic() {
  return {.bytes = bytes_.exchange(0), .synchronisations = synchronisations_.exchange(0)};
}

}  // namespace lockstep
