#include <lockstep/parallel/collectives/collective_thread.h>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <sstream>

#include <lockstep/parallel/collectives/dtypes.h>
#include <lockstep/parallel/threads/replica_thread.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::exception_ptr usage(const std::string& what, const std::string& hint = {}) {
  return std::make_exception_ptr(UsageError(what, hint));
}

}  // namespace

CollectiveThread::CollectiveThread(Endpoint& endpoint, CollectiveThreadOptions options)
    : endpoint_(endpoint), options_(std::move(options)), thread_([this] { set_up(); }) {}

// The first collective reports an error of the set-up: the thread itself cannot.
void CollectiveThread::set_up() noexcept try {
  stream_ = set_up_replica_thread(
      {.local = options_.local, .devices = options_.devices, .threads = options_.threads});
  if (stream_ && options_.trace) clock_.emplace(*stream_, *options_.trace);
  // A second set of intra-op threads would compete with the replica's own for its cores.
  at::set_num_threads(1);
  at::GradMode::set_enabled(false);
} catch (...) {
  set_up_error_ = std::current_exception();
}

Work CollectiveThread::post(std::string what, const torch::Tensor& tensor, Collective collective,
                            std::exception_ptr problem) {
  ++posted_;
  if (!problem) problem = tensor_problem(endpoint_, what, tensor);
  std::shared_ptr<c10::Event> ready;
  if (const auto device = endpoint_.device(); !device.is_cpu()) {
    ready = std::make_shared<c10::Event>(device.type());
    ready->record(current_stream(device));
  }
  auto done = std::make_shared<std::promise<Work::Done>>();
  Work work(done->get_future());
  thread_.post([this, what = std::move(what), tensor = tensor.detach(), ready, done, problem,
                collective = std::move(collective)] {
    try {
      // Checked before anything is shared: other ranks may still be in a collective that failed.
      if (const auto error = endpoint_.error()) std::rethrow_exception(error);
      if (problem) std::rethrow_exception(problem);
      if (set_up_error_) std::rethrow_exception(set_up_error_);
      if (ready) ready->block(*stream_);
      done->set_value(run(what, tensor, collective));
    } catch (...) {
      endpoint_.abort(std::current_exception());  // otherwise the other ranks would wait for ever
      done->set_exception(endpoint_.error());
    }
  });
  return work;
}

Work::Done CollectiveThread::run(const std::string& what, const torch::Tensor& tensor,
                                 const Collective& collective) {
  const PhaseSpan span(options_.trace,
                       fmt::format("{} {:.3f} MB", what, static_cast<double>(tensor.nbytes()) / 1e6),
                       endpoint_.rank(), Trace::Track::kCommunication, clock_);
  collective(stream_);
  if (!stream_) return nullptr;
  auto event = std::make_shared<c10::Event>(stream_->device_type());
  event->record(*stream_);
  return event;
}

std::exception_ptr tensor_problem(const Endpoint& endpoint, const std::string& what,
                                  const torch::Tensor& tensor) {
  std::ostringstream found;
  if (tensor.device() != endpoint.device()) {
    found << "on " << tensor.device();
  } else if (!tensor.is_contiguous()) {
    found << "of shape " << tensor.sizes() << " and strides " << tensor.strides();
  } else if (tensor.is_conj() || tensor.is_neg()) {
    found << "that is another one's conjugate or negative";
  } else {
    return nullptr;
  }
  return usage(fmt::format("rank {} on {} called {} with a tensor {}", endpoint.rank(),
                           endpoint.device().str(), what, found.str()),
               "collectives take contiguous tensors on the replica's own device");
}

std::exception_ptr gather_problem(const Endpoint& endpoint, const torch::Tensor& tensor,
                                  const torch::Tensor& out) {
  if (out.numel() == endpoint.world_size() * tensor.numel() && out.scalar_type() == tensor.scalar_type()) {
    const auto problem = tensor_problem(endpoint, "all_gather", tensor);
    return problem ? problem : tensor_problem(endpoint, "all_gather", out);
  }
  return usage(fmt::format("all_gather of {} from {} ranks into {}", describe_elements(tensor),
                           endpoint.world_size(), describe_elements(out)),
               "out needs room for one tensor per rank, of the same dtype");
}

std::exception_ptr root_problem(const Endpoint& endpoint, const torch::Tensor& tensor, int root) {
  const auto name = fmt::format("broadcast from {}", root);
  if (root >= 0 && root < endpoint.world_size()) return tensor_problem(endpoint, name, tensor);
  return usage(fmt::format("{} in a world of {}", name, endpoint.world_size()));
}

std::exception_ptr sum_problem(const Endpoint& endpoint, const torch::Tensor& tensor) {
  if (can_be_summed(tensor.scalar_type())) return tensor_problem(endpoint, "allreduce", tensor);
  return usage(fmt::format("allreduce cannot add {}", describe_elements(tensor)),
               "convert them to a dtype that torch adds, such as float32; broadcast and all_gather take any");
}

Work sum_into(const torch::Tensor& tensor, const torch::Tensor& addends, Work sum) {
  if (addends.is_alias_of(tensor)) return sum;
  return sum.then([tensor = tensor.detach(), addends] {
    tensor.view({-1}).view(addend_type(tensor.scalar_type())).copy_(addends.view({-1}));
  });
}

std::string describe_elements(const torch::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.numel() << " elements of " << tensor.scalar_type();
  return out.str();
}

}  // namespace lockstep
