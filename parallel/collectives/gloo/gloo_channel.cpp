// Each channel has a ProcessGroupGloo of its own, since a group matches the collectives of the processes by a
// counter of its own, and runs them one after the other in a thread of its own. That thread may wait for a
// peer for the whole timeout, so nothing else ever waits for it: when a collective ends it fulfils a
// promise, and after an error the group is abandoned.
#include <lockstep/parallel/collectives/gloo/gloo_channel.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <optional>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/collective_thread.h>
#include <lockstep/parallel/collectives/dtypes.h>
#include <lockstep/parallel/collectives/gloo/c10d_store.h>
#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using GlooGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

constexpr const char* kPeerHint = "another process ended, hangs or cannot be reached: see its own message";
constexpr std::chrono::seconds kConnectGrace{10};  // over Gloo's own timeout

struct GlooType {
  torch::ScalarType type;
  const char* name;
};

// That Gloo adds. (A bool is a byte to it.)
constexpr GlooType kGlooTypes[] = {
    {torch::kFloat, "float32"},     {torch::kDouble, "float64"}, {torch::kHalf, "float16"},
    {torch::kBFloat16, "bfloat16"}, {torch::kByte, "uint8"},     {torch::kChar, "int8"},
    {torch::kInt, "int32"},         {torch::kLong, "int64"},     {torch::kBool, "bool"}};

// Null for a type that Gloo cannot add.
const char* gloo_type_name(torch::ScalarType type) {
  for (const auto& known : kGlooTypes) {
    if (known.type == type) return known.name;
  }
  return nullptr;
}

const char* type_name(torch::ScalarType type) {
  const char* const known = gloo_type_name(type);
  return known ? known : c10::toString(type);
}

void check_host_tensor(const torch::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous()) {
    throw UsageError(
        fmt::format("Gloo got {} that are not contiguous in host memory", describe_elements(tensor)),
        "copy the tensor to the CPU, and make it contiguous");
  }
}

void check_addends(const torch::Tensor& tensor) {
  check_host_tensor(tensor);
  if (!gloo_type_name(tensor.scalar_type())) {
    throw UsageError(fmt::format("Gloo cannot add {}", describe_elements(tensor)),
                     "convert the tensor to another type");
  }
}

class ChannelOfGroup : public Channel {
 public:
  ChannelOfGroup(GlooGroup group, std::shared_ptr<PostedCollectives> posted,
                 std::shared_ptr<std::mutex> posting)
      : group_(std::move(group)), posted_(std::move(posted)), posting_(std::move(posting)) {}

  // The group's destructor joins its thread. A thread that may wait for a peer is left behind, with the group
  // and the tensors that it works on.
  ~ChannelOfGroup() override {
    if (!posted_->idle()) static_cast<void>(group_.release());
  }

  void serve(const Call& call) override { served_ = call; }

  std::future<void> allreduce_sum(torch::Tensor tensor) override {
    check_addends(tensor);
    const bool is_bool = tensor.scalar_type() == torch::kBool;
    std::vector<torch::Tensor> tensors{is_bool ? as_bytes(tensor) : tensor};
    c10d::AllreduceOptions options;
    if (is_bool) options.reduceOp = c10d::ReduceOp::MAX;  // a sum of two bytes would be no bool
    return post({.name = "allreduce"}, tensor, [&] { return group_->allreduce(tensors, options); });
  }

  std::future<void> broadcast(torch::Tensor tensor, int process) override {
    check_host_tensor(tensor);
    check_process(process);
    std::vector<torch::Tensor> tensors{as_bytes(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = process;
    return post({.name = "broadcast", .root = process}, tensor,
                [&] { return group_->broadcast(tensors, options); });
  }

  std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) override {
    check_host_tensor(tensor);
    check_gathered(tensor, out);
    std::vector<torch::Tensor> inputs{as_bytes(tensor)};
    std::vector<std::vector<torch::Tensor>> outputs{rows_of_bytes(out).unbind(0)};
    return post({.name = "all_gather"}, tensor, [&] { return group_->allgather(outputs, inputs); });
  }

  std::future<void> all_to_all(torch::Tensor tensor, torch::Tensor out, DealtSizes sizes) override {
    check_host_tensor(tensor);
    if (!sizes.sent.empty()) return all_to_all_uneven(tensor, out, std::move(sizes));
    check_dealt(tensor, out);
    auto sent = rows_of_bytes(tensor), received = rows_of_bytes(out);
    std::vector<int64_t> even;  // empty: one row each
    // torch 2.15 has another name for it, too, but 2.11 only this one.
    return post({.name = "all_to_all"}, tensor,
                [&] { return group_->alltoall_base(received, sent, even, even); });
  }

  void abort(std::exception_ptr error) noexcept override { posted_->fail(error); }

 private:
  std::future<void> all_to_all_uneven(const torch::Tensor& tensor, const torch::Tensor& out,
                                      DealtSizes sizes) {
    check_sizes(tensor, sizes.sent);
    check_host_tensor(out);
    check_sizes(out, sizes.received);
    for (auto* const side : {&sizes.sent, &sizes.received}) {
      for (auto& size : *side) size *= tensor.element_size();  // bytes
    }
    auto sent = as_bytes(tensor.detach()), received = as_bytes(out.detach());
    // Processes send unequally much.
    return post({.name = "all_to_all"}, tensor.numel() > 0 ? tensor : out, /*elements=*/0,
                [&] { return group_->alltoall_base(received, sent, sizes.received, sizes.sent); });
  }

  void check_sizes(const torch::Tensor& tensor, const std::vector<int64_t>& sizes) const {
    int64_t sum = 0;
    for (const auto size : sizes) sum += size;
    if (sizes.size() == static_cast<size_t>(group_->getSize()) && sum == tensor.numel()) return;
    throw UsageError(fmt::format("all_to_all of {} in parts of {}, between {} processes",
                                 describe_elements(tensor), fmt::join(sizes, ", "), group_->getSize()));
  }

  void check_process(int process) const {
    if (process >= 0 && process < group_->getSize()) return;
    throw UsageError(fmt::format("broadcast from process {} of {}", process, group_->getSize()));
  }

  // out (processes, ...tensor's shape)
  void check_gathered(const torch::Tensor& tensor, const torch::Tensor& out) const {
    check_host_tensor(out);
    auto shape = tensor.sizes().vec();
    shape.insert(shape.begin(), group_->getSize());
    if (out.sizes().vec() == shape && out.scalar_type() == tensor.scalar_type()) return;
    throw UsageError(fmt::format("all_gather of {} from {} processes into {}", describe_elements(tensor),
                                 group_->getSize(), describe_elements(out)));
  }

  // Both (processes, ...)
  void check_dealt(const torch::Tensor& tensor, const torch::Tensor& out) const {
    check_host_tensor(out);
    const bool has_rows = tensor.dim() > 0 && tensor.size(0) == group_->getSize();
    if (has_rows && out.sizes() == tensor.sizes() && out.scalar_type() == tensor.scalar_type()) return;
    throw UsageError(fmt::format("all_to_all of {} between {} processes into {}", describe_elements(tensor),
                                 group_->getSize(), describe_elements(out)));
  }

  // (processes, bytes)
  torch::Tensor rows_of_bytes(const torch::Tensor& tensor) const {
    const auto bytes = as_bytes(tensor.detach());
    return bytes.view({group_->getSize(), bytes.numel() / group_->getSize()});
  }

  // tensor: nothing is sent if it has no elements, in every process. elements: in all processes the same.
  template <typename Launch>
  std::future<void> post(PostedCollective collective, const torch::Tensor& tensor, int64_t elements,
                         const Launch& launch);
  template <typename Launch>
  std::future<void> post(PostedCollective collective, const torch::Tensor& tensor, const Launch& launch) {
    return post(std::move(collective), tensor, tensor.numel(), launch);
  }

  GlooGroup group_;
  const std::shared_ptr<PostedCollectives> posted_;
  const std::shared_ptr<std::mutex> posting_;
  uint64_t count_ = 0;
  std::optional<Call> served_ = {};
};

struct CollectivePlace {
  int process;
  int processes;
};

std::exception_ptr collective_error(const PostedCollective& collective, CollectivePlace place,
                                    const std::string& what) {
  return std::make_exception_ptr(
      PeerError(fmt::format("{} failed in process {} of {}: {}", text_of(collective), place.process,
                            place.processes, clean_words(what)),
                kPeerHint));
}

// Processes exchange only what has the same tag. Else Gloo ends the program where another process's numbers
// are more than there is room for, and adds what should not be added where they are as many.
uint32_t tag_of(const PostedCollective& collective, torch::ScalarType type) {
  const auto own = Call{.number = collective.number,
                        .name = collective.name,
                        .root = collective.root,
                        .elements = collective.elements,
                        .type = type};
  return digest_of(collective.call.value_or(own));
}

// c10d counts the collectives of a group for their tags. Only a class derived from the group has access to
// the counter; no object of this one is made.
class Tags : public c10d::ProcessGroupGloo {
 public:
  static void set_next(c10d::ProcessGroupGloo& group, uint32_t tag) {
    group.*(&Tags::collectiveCounter_) = tag;
  }
};

// Called by Gloo's thread.
void end_collective(PostedCollectives& posted, const PostedCollective& collective, CollectivePlace place,
                    const c10::ivalue::Future& result) {
  if (!result.hasError()) return posted.finish(collective.number);
  posted.fail(collective_error(collective, place, result.tryRetrieveErrorMessage()));
}

template <typename Launch>
std::future<void> ChannelOfGroup::post(PostedCollective collective, const torch::Tensor& tensor,
                                       int64_t elements, const Launch& launch) {
  collective.number = count_++;
  collective.elements = elements;
  collective.type = type_name(tensor.scalar_type());
  collective.call = served_;
  auto done = posted_->begin(collective);
  if (posted_->failed()) return done;
  if (tensor.numel() == 0) {
    posted_->finish(collective.number);
    return done;
  }
  const CollectivePlace place{.process = group_->getRank(), .processes = group_->getSize()};
  try {
    // The callback has no part in the group: in Gloo's thread it cannot be the last to hold it.
    const auto work = [&] {
      const std::lock_guard lock(*posting_);
      Tags::set_next(*group_, tag_of(collective, tensor.scalar_type()));
      return launch();
    }();
    work->getFuture()->addCallback(
        [posted = posted_, collective, place](const c10::ivalue::Future& result) {
          end_collective(*posted, collective, place, result);
        },
        /*uses_future=*/false);
  } catch (const std::exception& error) {
    posted_->fail(collective_error(collective, place, error.what()));
  }
  return done;
}

// Gives the calling thread the policy SCHED_BATCH for the object's lifetime, and threads that it starts
// meanwhile for good: when they wake up, they do not interrupt the thread that runs on that core, but wait
// for a free core or for their turn. A thread with a policy of its own keeps it.
class BatchPolicy {
 public:
  BatchPolicy() : set_(::sched_getscheduler(0) == SCHED_OTHER && set(SCHED_BATCH)) {}
  ~BatchPolicy() {
    if (set_) set(SCHED_OTHER);
  }
  BatchPolicy(const BatchPolicy&) = delete;
  BatchPolicy& operator=(const BatchPolicy&) = delete;

 private:
  static bool set(int policy) {
    const sched_param priority{};
    return ::sched_setscheduler(0, policy, &priority) == 0;
  }

  const bool set_;
};

// Gloo's thread that reads from the connections spins while another thread holds a connection's lock. With
// one core for both it could interrupt that thread and spin until the kernel's next tick: a sum of 1 KB took
// 4 ms there, and takes .2 with this policy (docs/results.md).
std::shared_ptr<gloo::transport::Device> listen_with_gloo(const GlooChannelOptions& options) {
  const BatchPolicy policy;
  try {
    return c10d::ProcessGroupGloo::createDeviceForHostname(options.address);
  } catch (const std::exception& error) {
    throw DeviceError(fmt::format("process {} cannot listen on {}: {}", options.process, options.address,
                                  clean_words(error.what())),
                      "give " + NamedOption{"listen"} + " an address of this host");
  }
}

GlooGroup connect_group(const std::shared_ptr<C10dStore>& store, const GlooChannelOptions& options) {
  auto group = c10d::ProcessGroupGloo::Options::create(options.timeout);
  group->threads = 1;
  group->devices.push_back(listen_with_gloo(options));
  const auto prefix = fmt::format("channel/{}", options.channel);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>(prefix, store->store), options.process, options.processes,
      std::move(group));
}

}  // namespace

GlooChannel open_gloo_channel(const std::shared_ptr<C10dStore>& store, const GlooChannelOptions& options) {
  const auto failed = [&](const std::string& why) {
    return PeerError(fmt::format("process {} of {} cannot connect to the others: {}", options.process,
                                 options.processes, why),
                     kPeerHint);
  };
  try {
    auto group = call_within(
        options.timeout + kConnectGrace, [store, options] { return connect_group(store, options); },
        options.given_up);
    auto posted = std::make_shared<PostedCollectives>();
    return {.channel = std::make_unique<ChannelOfGroup>(std::move(group), posted, options.posting),
            .posted = posted};
  } catch (const Error&) {
    throw;
  } catch (const GivenUpCall&) {
    throw peer_failed_error();
  } catch (const std::exception& error) {  // c10d's, or a TimedOutCall
    throw failed(clean_words(error.what()));
  }
}

}  // namespace lockstep
